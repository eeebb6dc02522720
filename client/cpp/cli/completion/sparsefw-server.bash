# Bash completion for sparsefw-server.
# tests/integration/cli/test_completion.py compares it with --help.

_sparsefw_server() {
  local flag=${COMP_WORDS[COMP_CWORD - 1]} text=${COMP_WORDS[COMP_CWORD]} words=
  COMPREPLY=()
  case $flag in
    --config | --tls-cert | --tls-key | --tls-client-ca | --tokens | --tenants)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$text")
      return ;;
    --state-dir | --spool-dir)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$text")
      return ;;
    --device) words="auto cpu reference cuda cuda:0" ;;
    --store) words="sqlite memory" ;;
    --log-level) words="debug info warning error" ;;
    --log-format) words="text json" ;;
    *)
      [[ $text == -* ]] || return
      words="--help --version --listen --metrics-listen --tls-cert --tls-key --tls-client-ca --tokens --tenants
        --insecure --insecure-metrics --max-connections --max-peer-connections
        --connection-memory --peer-memory --state-dir --spool-dir --discard-unmatched
        --store --device --workers --io-threads --job-threads --host-memory --disk-budget --staging-memory --solve-memory
        --device-memory --streams-per-device --max-tensor-bytes --max-tensors --max-queued-jobs
        --max-job-bytes --max-result-ttl --starvation-limit --max-attempts
        --checkpoint-period --drain-grace --fetch-grace --upload-idle-ttl --tensor-ttl --gc-interval
        --gpu-metrics-period --log-level --log-format --config" ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$text")
}

complete -F _sparsefw_server sparsefw-server
