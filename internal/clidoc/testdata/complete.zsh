# complete.zsh SCRIPT FOLDER LINE...: what zsh's editor makes of each line when
# Tab is pressed after it, by the completions of SCRIPT. It leaves files in
# FOLDER.
zmodload zsh/zpty
out=$2/buffer
script=$1
shift 2
zpty editor TERM=dumb zsh -f -i
zpty -w editor "
	PS1=; autoload -Uz compinit; compinit -D -u; source ${(q)script}
	setopt no_beep no_auto_menu; LISTMAX=0
	report() { print -r -- \"\$BUFFER\" >${(q)out}.new; mv ${(q)out}.new ${(q)out}; BUFFER= }
	zle -N report; bindkey '^X^R' report
	report"
await() {
	# The terminal's buffer would fill up if nobody read it.
	until [[ -e $out ]]; do
		zpty -r -t editor && sleep 0.01
	done >/dev/null
}
await
for line; do
	rm -f $out
	zpty -w -n editor "$line"$'\t\x18\x12'
	await
	cat $out
done
zpty -d editor
