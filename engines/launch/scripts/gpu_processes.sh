# Pids that hold GPU memory, one a line with MiB; nothing where there is no GPU. Last line "end".
if command -v nvidia-smi >/dev/null 2>&1; then
  timeout 10 nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits 2>/dev/null | tr -d ' '
fi
echo end
