# Writes each message to the file in its argument, and answers with the status of another action.
while read -r line; do
    printf '%s\n' "$line" >> "$1"
    printf '\n{"action":"status","responseFor":"processRecords"}\n'
done
printf 'end\n' >> "$1"
