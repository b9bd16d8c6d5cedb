package clidoc

import (
	"embed"
	"strings"
)

// scripts get the candidates from fulgur itself, so they contain no commands and flags.
//
//go:embed complete.bash complete.zsh complete.fish
var scripts embed.FS

// Script returns the script that completes a program's command lines in a shell: bash, zsh or fish.
func Script(program, shell string) (string, error) {
	script, err := scripts.ReadFile("complete." + shell)
	return strings.ReplaceAll(string(script), "fulgur", program), err
}
