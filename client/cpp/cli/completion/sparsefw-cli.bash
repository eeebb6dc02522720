# Bash completion for sparsefw-cli. Commands, flags and their values are those of its own --help;
# tests/integration/cli/test_completion.py holds it against that.

# A line for every flag of a command: the flag, and the type of its value.
_sparsefw_cli_flags() {
  "${COMP_WORDS[0]}" ${1:+"$1"} --help 2>/dev/null |
    sed -nE 's/^  (-[a-zA-Z], ?)?(--[a-z-]+)( ([^ ]+))?(  .*)?$/\2 \4/p'
}

_sparsefw_cli_commands() {
  "${COMP_WORDS[0]}" --help 2>/dev/null | sed -nE '/^Subcommands:/,$ s/^  ([a-z-]+) .*/\1/p'
}

# The values that a type names, "open-loop|line-search"; nothing where there is no list.
_sparsefw_cli_values() {
  local values=$1
  [[ $values == *'|'* ]] || return
  values=${values/A:B/1:4|2:4|4:8}
  values=${values/cuda:N/cuda:0}
  echo "${values//|/ }"
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
  local key=$1 text=$2 flags=$3 done= values=
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
  case $key in
    swaps | reconstruct | joint) values="on off" ;;
    *) values=$(_sparsefw_cli_values "$(sed -n "s/^--$key //p" <<<"$flags")") ;;
  esac
  _sparsefw_cli_reply "${text##*,}" "$values"
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
  type=$(sed -n "s/^$flag //p" <<<"$flags")
  case $type in
    FILE* | FOLDER | PATH) _sparsefw_cli_files "$text" ;;
    KEY=VALUE\[*) _sparsefw_cli_sweep "$key" "$text" "$flags" ;;
    ?*) _sparsefw_cli_reply "$text" "$(_sparsefw_cli_values "$type")" ;;
    *)
      if [[ $text == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(cut -d' ' -f1 <<<"$flags")" -- "$text")
      elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_sparsefw_cli_commands)" -- "$text")
      fi
      ;;
  esac
}

complete -F _sparsefw_cli sparsefw-cli
