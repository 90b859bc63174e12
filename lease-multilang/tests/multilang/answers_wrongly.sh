# Notes all that it is told in the file that it is given, and answers for something else.
while read -r line; do
    printf '%s\n' "$line" >> "$1"
    printf '\n{"action":"status","responseFor":"processRecords"}\n'
done
printf 'end\n' >> "$1"
