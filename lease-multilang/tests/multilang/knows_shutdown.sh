# Knows no end but `shutdown`, as children of the first two generations, and ends at any other.
while read -r line; do
    action=${line#*'"action":"'}
    action=${action%%'"'*}
    case $action in
        initialize | processRecords | shutdown)
            printf '\n{"action":"status","responseFor":"%s"}\n' "$action" ;;
        *) exit 1 ;;
    esac
done
