# Answers all that it is told, and notes when: at its start, and at its first records.
note() {
    printf '%s\t%s\t%s\t%s\n' "$$" "$1" "$shard" "$(date +%s%3N)" >>"$NOTES"
}

shard=?
note started
while read -r line; do
    action=${line#*'"action":"'}
    action=${action%%'"'*}
    case $action in
        initialize)
            shard=${line#*'"shardId":"'}
            shard=${shard%%'"'*}
            note begun
            ;;
        processRecords) note record ;;
    esac
    printf '\n{"action":"status","responseFor":"%s"}\n' "$action"
done
