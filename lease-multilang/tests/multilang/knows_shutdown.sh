# Knows only the end message `shutdown`, like children of the first two generations. Exits at every other end
# message.
while read -r line; do
    action=${line#*'"action":"'}
    action=${action%%'"'*}
    case $action in
        initialize | processRecords | shutdown)
            printf '\n{"action":"status","responseFor":"%s"}\n' "$action" ;;
        *) exit 1 ;;
    esac
done
