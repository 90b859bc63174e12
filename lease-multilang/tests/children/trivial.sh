# Answers each message, and records the time of its start and of each batch.
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
