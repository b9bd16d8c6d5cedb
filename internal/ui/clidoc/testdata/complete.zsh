# complete.zsh SCRIPT FOLDER LINE...: what zsh's editor makes of each line when
# Tab is pressed after it, by the completions of SCRIPT. It leaves files in
# FOLDER.
zmodload zsh/zpty
script=$1 folder=$2
shift 2

# What the shell in the terminal begins with. It reports as soon as its editor
# reads keys: what is typed before is lost when it sets the terminal up.
cat >$folder/.zshrc <<EOF2
PS1=
autoload -Uz compinit
compinit -D -u
source ${(q)script}
setopt no_beep no_auto_menu
LISTMAX=0
report() {
	print -r -- "\$BUFFER" >${(q)folder}/new
	mv ${(q)folder}/new ${(q)folder}/buffer
	BUFFER=
}
zle -N report
zle -N zle-line-init report
bindkey '^X^R' report
EOF2

await() {
	# The terminal's buffer would fill up if nobody read it.
	until [[ -e $folder/buffer ]]; do
		zpty -r -t editor || sleep 0.01
		((SECONDS < 60)) || exit 1
	done >/dev/null
}

zpty editor "ZDOTDIR=${(q)folder} TERM=dumb zsh -d -i"
await
for line; do
	rm -f $folder/buffer
	zpty -w -n editor "$line"$'\t\x18\x12'
	await
	cat $folder/buffer
done
zpty -d editor
