#compdef sparsefw-cli sparsefw-server
# Zsh completion: what the bash completion offers. Installed as zsh/vendor-completions/_sparsefw.

local share=${functions_source[_sparsefw]:A:h:h:h} program=${words[1]:t} one
local -a offered
offered=("${(@f)$(bash $share/sparsefw/completion/words $share/bash-completion/completions/$program \
  "${(@)words[1,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
for one in $offered; do
  if [[ $one == *[=/] ]]; then
    compadd -S '' -- $one  # the word goes on
  else
    compadd -- $one
  fi
done
