# Completion of fulgur for fish, written by "fulgur completion fish".

function __fulgur_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    # What follows -- is another program's command line.
    if set -l dashes (contains -i -- -- $words)
        set -e words[1..$dashes]
        complete -C (string join -- ' ' (string escape -- $words) $word)
        return
    end
    set -l program (string replace -r -- '^~/' "$HOME/" $words[1])
    set -e words[1]
    set -l lines ($program complete -- $words "$word" 2>/dev/null)
    set -l first (string split -- \t "$lines[1]")
    set -e lines[1]
    set -l before (string sub -l (math (string length -- "$word") - (string length -- "$first[2]")) -- "$word")
    switch "$first[1]"
        case file
            set lines (complete -C "'' $first[2]")
        case directory
            set lines (__fish_complete_directories "$first[2]" '')
        case '*'
            set before ''
    end
    printf '%s\n' $before$lines
end

complete -c fulgur -f -a '(__fulgur_complete)'
