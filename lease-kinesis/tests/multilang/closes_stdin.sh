# Asks for a checkpoint of its first batch, and does not read the reply.
read -r _
printf '\n{"action":"status","responseFor":"initialize"}\n'
read -r _
exec 0<&-
printf '\n{"action":"checkpoint"}\n'
sleep 600
