# Bash completion for sparsefw-cli. Commands, flags and their values are those of its own --help;
# tests/integration/cli/test_completion.py holds it against that. As a program it prints what it offers for a
# command line, one word a line: the completions of zsh and fish run it.

# A line for every flag of a command: the flag, and the type of its value.
_sparsefw_cli_flags() {
  "${COMP_WORDS[0]}" ${1:+"$1"} --help 2>/dev/null |
    sed -nE 's/^  (-[a-zA-Z], ?)?(--[a-z-]+)( ([^ ]+))?(  .*)?$/\2 \4/p'
}

_sparsefw_cli_commands() {
  "${COMP_WORDS[0]}" --help 2>/dev/null | sed -nE '/^Subcommands:/,$ s/^  ([a-z-]+) .*/\1/p'
}

# The type of flag $1 among the flags $2.
_sparsefw_cli_type() {
  local flag type
  while read -r flag type; do
    [[ $flag != "$1" ]] || echo "$type"
  done <<<"$2"
}

# The values that a type names, "open-loop|line-search"; nothing where there is no list.
_sparsefw_cli_values() {
  local values=$1
  [[ $values == *'|'* ]] || return
  values=${values/A:B/1:4|2:4|4:8}
  values=${values/cuda:N/cuda:0}
  echo "${values//|/$'\n'}"
}

# Replies with the lines of standard input that, behind $2, match the text at the cursor. Somebody else chose the
# names of tensors and jobs: nothing here may expand them, as compgen -W does, nor may the line once it is run.
# So they are quoted for bash, which sets COMP_TYPE; zsh and fish quote by themselves. Bash splits words at ':'
# where COMP_WORDBREAKS has it and replaces only what follows.
_sparsefw_cli_reply() {
  local text=$1 before=${2-} prefix= word quoted
  while IFS= read -r word; do
    [[ -n $word ]] || continue
    quoted=$word
    [[ -z ${COMP_TYPE-} ]] || printf -v quoted %q "$word"
    [[ $before$word != "$text"* && $before$quoted != "$text"* ]] || COMPREPLY+=("$before$quoted")
  done
  if [[ $text == *:* && $COMP_WORDBREAKS == *:* ]]; then
    prefix=${text%"${text##*:}"}
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
  fi
}

_sparsefw_cli_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# The tensors of a safetensors file, from its header.
_sparsefw_cli_tensors() {
  local bytes
  bytes=$(od -An -N8 -t u8 -- "$1" 2>/dev/null)
  ((bytes > 1 && bytes < 10000000)) || return
  tail -c +9 -- "$1" | head -c "$bytes" |
    grep -aoE '"[^"\\[:cntrl:]]+": *\{ *"(dtype|shape|data_offsets)"' | cut -d'"' -f2
}

# FILE[:TENSOR]
_sparsefw_cli_tensor() {
  local file=${1%:*}
  if [[ $1 != *:* || ! -f $file ]]; then
    _sparsefw_cli_files "$1"
    return
  fi
  _sparsefw_cli_reply "$1" "$file:" < <(_sparsefw_cli_tensors "$file")
}

# The newest jobs of the server that the command line names.
_sparsefw_cli_jobs() {
  local connection=() i
  for ((i = 2; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i - 1]} in
      --server | --tls-ca | --tls-cert | --tls-key | --token-file)
        connection+=("${COMP_WORDS[i - 1]}" "${COMP_WORDS[i]}")
        # An address is split at ':'.
        [[ ${COMP_WORDS[i + 1]-} != : ]] || connection[-1]+=:${COMP_WORDS[i + 2]-} ;;
    esac
  done
  "${COMP_WORDS[0]}" list --limit 100 --timeout 1s "${connection[@]}" 2>/dev/null |
    sed -nE 's/^(jobs\/[^ ]+) .*/\1/p'
}

# KEY=VALUE[,VALUE...]: $1 is the key, empty while it is being typed.
_sparsefw_cli_sweep() {
  local key=$1 text=$2 flags=$3 done= values=
  if [[ -z $key && $text == *=* ]]; then
    key=${text%%=*}
    done="$key="
    text=${text#*=}
  fi
  if [[ -z $key ]]; then
    compopt -o nospace 2>/dev/null
    _sparsefw_cli_reply "$text" < <(printf '%s=\n' alpha sparsity method pattern swaps reconstruct joint)
    return
  fi
  [[ $text != *,* ]] || done+="${text%,*},"
  case $key in
    swaps | reconstruct | joint) values=$'on\noff' ;;
    alpha) values=$'0\n0.5\n0.9' ;;
    sparsity) values=$'0.5\n0.6\n0.7' ;;
    *) values=$(_sparsefw_cli_values "$(_sparsefw_cli_type "--$key" "$flags")") ;;
  esac
  _sparsefw_cli_reply "${text##*,}" <<<"$values"
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
  local flags type
  flags=$(_sparsefw_cli_flags "$command")
  type=$(_sparsefw_cli_type "$flag" "$flags")
  case $type in
    FILE*:TENSOR*) _sparsefw_cli_tensor "$text" ;;
    FILE* | FOLDER | PATH) _sparsefw_cli_files "$text" ;;
    KEY=VALUE\[*) _sparsefw_cli_sweep "$key" "$text" "$flags" ;;
    ?*) _sparsefw_cli_reply "$text" < <(_sparsefw_cli_values "$type") ;;
    *)
      if [[ $text == -* ]]; then
        _sparsefw_cli_reply "$text" < <(cut -d' ' -f1 <<<"$flags")
      elif [[ -z $command ]]; then
        _sparsefw_cli_reply "$text" < <(_sparsefw_cli_commands)
      elif "${COMP_WORDS[0]}" "$command" --help 2>/dev/null | grep -q '^Usage: .* JOB '; then
        _sparsefw_cli_reply "$text" < <(_sparsefw_cli_jobs)
      fi
      ;;
  esac
}

complete -F _sparsefw_cli sparsefw-cli
