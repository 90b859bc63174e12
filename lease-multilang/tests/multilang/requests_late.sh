# Answers each message. Requests a checkpoint in the same write as the status of a batch.
while read -r line; do
    action=${line#*'"action":"'}
    action=${action%%'"'*}
    status="\n{\"action\":\"status\",\"responseFor\":\"$action\"}\n"
    case $action in
        checkpoint) ;;
        processRecords) printf "$status"'\n{"action":"checkpoint"}\n' ;;
        *) printf "$status" ;;
    esac
done
