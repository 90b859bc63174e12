# Writes each message to the file that is its argument, and answers another action.
while read -r line; do
    printf '%s\n' "$line" >> "$1"
    printf '\n{"action":"status","responseFor":"processRecords"}\n'
done
printf 'end\n' >> "$1"
