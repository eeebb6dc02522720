# Bash completion for sparsefw-cli: commands, flags, values and files.
# tests/integration/cli/test_completion.py compares it with --help.

_sparsefw_cli_flags() {
  local common="--help --json --server --tls-ca --tls-cert --tls-key --token-file --timeout \
    --retry-for"
  local outputs="--out --out-weights --keep-tensors --quiet"
  local spec="--method --pattern --sparsity --preset --ria-exponent --shrinkage --damping --block-size --iterations \
    --step-rule --alpha --rel-gap --report-every --warm-start --swaps --no-keep-fixed --reconstruct \
    --joint --joint-damping --joint-excluded --deadline --device --precision --priority --label"
  case $1 in
    submit)
      echo "$common $outputs $spec --weights --gram --activations --warm-mask --saliency --sweep" \
        "--keep-all --detach --mask-only" ;;
    prune-model) echo "$common $spec --grams --out --state-dir --in-flight --quiet" ;;
    watch) echo "$common --quiet" ;;
    fetch) echo "$common $outputs" ;;
    list) echo "$common --state --label --limit" ;;
    gram) echo "$common --activations --out --dtype --keep-tensors --quiet" ;;
    status | cancel | delete | info | health) echo "$common" ;;
    *) echo "--help --version" ;;
  esac
}

# The values of a flag or of a sweep's KEY; nothing where there is no list.
_sparsefw_cli_values() {
  case $1 in
    --method | method) echo "sparsefw wanda ria magnitude sparsegpt alps" ;;
    --preset) echo "paper fast balanced best" ;;
    --pattern | pattern) echo "unstructured per-row 1:4 2:4 4:8" ;;
    --warm-start) echo "wanda ria magnitude" ;;
    --step-rule) echo "open-loop line-search auto" ;;
    --precision) echo "fp32 tf32 bf16" ;;
    --device) echo "auto cpu reference cuda cuda:0" ;;
    --state) echo "queued running succeeded failed cancelled" ;;
    --dtype) echo "F32 F64" ;;
    swaps | reconstruct | joint) echo "on off" ;;
  esac
}

# Which flags are followed by a value that cannot be completed.
_sparsefw_cli_takes_text() {
  case $1 in
    --server | --timeout | --retry-for | --sparsity | --ria-exponent | --shrinkage | --damping | --block-size | \
      --joint-damping | --joint-excluded | --iterations | --alpha | --rel-gap | --report-every | --deadline | --priority | --label | \
      --limit | --in-flight) return 0 ;;
  esac
  return 1
}

# Words that match the text at the cursor. Bash splits words at ':' where
# COMP_WORDBREAKS has it and replaces only what follows.
_sparsefw_cli_reply() {
  local text=$1 prefix=
  mapfile -t COMPREPLY < <(compgen -W "$2" -- "$text")
  if [[ $text == *:* && $COMP_WORDBREAKS == *:* ]]; then
    prefix=${text%"${text##*:}"}
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
  fi
}

_sparsefw_cli_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# KEY=VALUE[,VALUE...]: $1 is the key, empty while it is being typed.
_sparsefw_cli_sweep() {
  local key=$1 text=$2 done=
  if [[ -z $key && $text == *=* ]]; then
    key=${text%%=*}
    done="$key="
    text=${text#*=}
  fi
  if [[ -z $key ]]; then
    compopt -o nospace 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -S = -W "alpha sparsity method pattern swaps reconstruct \
      joint" -- "$text")
    return
  fi
  [[ $text != *,* ]] || done+="${text%,*},"
  _sparsefw_cli_reply "${text##*,}" "$(_sparsefw_cli_values "$key")"
  COMPREPLY=("${COMPREPLY[@]/#/$done}")
}

_sparsefw_cli() {
  local command= flag= key= text=${COMP_WORDS[COMP_CWORD]} i=$COMP_CWORD
  COMPREPLY=()
  ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}
  # Join "2" ":" "4".
  while ((i > 2)) && [[ ${COMP_WORDS[i - 1]} != -* &&
    (${COMP_WORDS[i]} == : || ${COMP_WORDS[i - 1]} == :) ]]; do
    ((i--))
    text=${COMP_WORDS[i]}$text
  done
  flag=${COMP_WORDS[i - 1]}
  # --flag=value and --sweep key=value are split at '='.
  if [[ $text == = ]]; then
    text=
    ((i++))
    flag==
  fi
  if [[ $flag == = ]]; then
    flag=${COMP_WORDS[i - 2]}
    if ((i > 3)) && [[ ${COMP_WORDS[i - 3]} == --sweep ]]; then
      key=$flag
      flag=--sweep
    fi
  fi
  case $flag in
    --weights | --gram | --activations | --warm-mask | --saliency | --out | --out-weights | \
      --tls-ca | --tls-cert | --tls-key | --token-file | --grams | --state-dir)
      _sparsefw_cli_files "$text"
      return ;;
    --sweep)
      _sparsefw_cli_sweep "$key" "$text"
      return ;;
  esac
  local values
  values=$(_sparsefw_cli_values "$flag")
  if [[ $flag == --* && -n $values ]]; then
    _sparsefw_cli_reply "$text" "$values"
  elif _sparsefw_cli_takes_text "$flag"; then
    return
  elif [[ $text == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_sparsefw_cli_flags "$command")" -- "$text")
  elif [[ $command == prune-model ]] && ((i == 2)); then
    _sparsefw_cli_files "$text"
  elif [[ -z $command ]]; then
    mapfile -t COMPREPLY < <(compgen -W "submit status watch fetch cancel delete list gram \
      prune-model info health" \
      -- "$text")
  fi
}

complete -F _sparsefw_cli sparsefw-cli
