# Closes stdin after its first batch and then requests checkpoints. It repeats the request, because a process
# that the daemon forks at the same moment keeps the closed pipe open until it calls `exec`.
read -r _
printf '\n{"action":"status","responseFor":"initialize"}\n'
read -r _
exec 0<&-
while printf '\n{"action":"checkpoint"}\n'; do
    sleep 0.1
done
