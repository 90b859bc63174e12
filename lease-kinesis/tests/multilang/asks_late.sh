# Answers all that it is told, and asks for a checkpoint in the same breath.
while read -r line; do
    action=${line#*'"action":"'}
    action=${action%%'"'*}
    if [ "$action" != checkpoint ]; then
        printf '\n{"action":"status","responseFor":"%s"}\n{"action":"checkpoint"}\n' "$action"
    fi
done
