# Checkpoints at `shardEnded`. Answers every other message with a status, even an unknown message.
while read -r line; do
    action=${line#*'"action":"'}
    action=${action%%'"'*}
    case $action in
        shardEnded)
            printf '\n{"action":"checkpoint"}\n'
            read -r _
            printf '\n{"action":"status","responseFor":"shardEnded"}\n' ;;
        *) printf '\n{"action":"status","responseFor":"%s"}\n' "$action" ;;
    esac
done
