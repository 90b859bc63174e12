# Answers all that it is told, and asks for a checkpoint of a batch in the same breath.
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
