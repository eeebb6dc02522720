# Fish completion: what the bash completion offers. Installed for each program, under its name, in
# fish/vendor_completions.d.
set -l share (status dirname)/../..
set -l program (status filename | string replace -r '.*/(.*)\.fish$' '$1')
complete -c $program -f -a "(bash $share/sparsefw/completion/words \
  $share/bash-completion/completions/$program (commandline -opc) \"\$(commandline -ct)\" 2>/dev/null)"
