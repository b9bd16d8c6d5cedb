package decode

import (
	"errors"
	"regexp"
	"strings"
)

// errGluedBranches is the error of a text in which the instruction of a sample cannot be told from the
// branches that follow.
var errGluedBranches = errors.New("the branches of -F brstacksym follow the instruction without a blank, so its name is not known: use -F brstack, or show the file with -F dso")

// tails begin what -F iregs, insnlen and insn show after the instruction of a sample.
var tails = []string{" ABI:", " ilen: ", " insn: "}

// cutTail cuts off what follows the instruction of a sample in its line: registers, the bytes of the
// instruction, branches. Nothing is left of a line of only branches, see [cutBranches].
func cutTail(line string) (rest string, onlyBranches bool, err error) {
	rest, found, err := cutBranches(line)
	if found && strings.TrimSpace(rest) == "" {
		return "", true, err
	}
	for _, t := range tails {
		if i := strings.Index(rest, t); i > 0 && strings.TrimSpace(rest[:i]) != "" {
			rest = rest[:i]
		}
	}
	return rest, false, err
}

// cutBranches cuts off what -F brstack, brstacksym and brstackoff show at the end of the line of a
// sample: branches, the newest first, as in
//
//	0x401136/0x401120/P/-/-/3/ 0x401131/0x401133/M/-/-/1/
//	main+0x10/leaf+0x0/P/-/-/3/
//	0x401136(/bin/leaf)/0x401120(/bin/leaf)/P/-/-/3/
//
// Branches with symbols follow without a blank. After a call chain, they are a line of their own, of which
// nothing is left. found reports whether there were branches.
func cutBranches(line string) (rest string, found bool, err error) {
	flags := branchFlags(line)
	if flags < 0 {
		return line, false, nil
	}
	before := line[:flags]
	if m := addressBranch.FindStringIndex(before); m != nil {
		return line[:m[0]], true, nil
	}
	ends := branchSource.FindAllStringIndex(before, -1)
	if ends == nil {
		return line, false, nil
	}
	source := before[:ends[len(ends)-1][1]]
	if m := unknownBranch.FindStringIndex(source); m != nil {
		return line[:m[0]], true, nil
	}
	for _, begin := range []string{" (/", " (["} {
		if i := strings.Index(source, begin); i >= 0 {
			return line[:closeParenthesis(line, i+1)], true, nil
		}
	}
	if line[0] != ' ' {
		if _, isHead := parseHead(source); !isHead {
			return "", true, nil
		}
	}
	return line, true, errGluedBranches
}

var (
	// addressBranch matches the addresses of a branch, before its flags.
	addressBranch = regexp.MustCompile(`0x[0-9a-f]+` + branchFile + `/0x[0-9a-f]+` + branchFile + `$`)
	// branchSource matches the end of the symbol that a branch leaves, with the slash.
	branchSource = regexp.MustCompile(`(\+0x[0-9a-f]+|\[unknown\])` + branchFile + `/`)
	// unknownBranch matches a whole one without a name.
	unknownBranch = regexp.MustCompile(`\[unknown\]` + branchFile + `/$`)
)

// branchFile matches the file of a branch, if shown, which may be "(/x (deleted))".
const branchFile = `(\(([^()]|\([^()]*\))*\))?`

// branchFlags returns the index of the slash before the flags of the first branch in a line, or -1:
// /PREDICTED/IN_TX/ABORT/. The first may have a second letter, for branches that were not taken.
func branchFlags(line string) int {
	for i := strings.IndexByte(line, '/'); i >= 0 && i < len(line); {
		word, rest, _ := strings.Cut(line[i+1:], "/")
		switch word {
		case "P", "M", "-", "PN", "MN", "N":
			if len(rest) > 3 && rest[1] == '/' && rest[3] == '/' && strings.IndexByte("X-", rest[0]) >= 0 && strings.IndexByte("A-", rest[2]) >= 0 {
				return i
			}
		}
		i += 1 + len(word)
	}
	return -1
}
