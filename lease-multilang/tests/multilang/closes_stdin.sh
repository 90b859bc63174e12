# Asks for checkpoints after its first batch, and cannot read the replies. It asks more than once: a
# process that the daemon forks at the same moment has the closed pipe open until it calls `exec`.
read -r _
printf '\n{"action":"status","responseFor":"initialize"}\n'
read -r _
exec 0<&-
while printf '\n{"action":"checkpoint"}\n'; do
    sleep 0.1
done
