# Completion of tool for fish, written by "tool completion fish".

# Whether the words before the cursor choose this command, and what follows is
# not another program's command line.
function __tool_command
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"; and not contains -- -- $words
end

# Whether what follows is.
function __tool_launches
    contains -- -- (commandline -opc)
end

# Completes the command line that follows --.
function __tool_launched
    set -l words (commandline -opc) (commandline -ct)
    set -l dashes (contains -i -- -- $words)
    complete -C (string join -- ' ' (string escape -- $words[(math $dashes + 1)..-2]) $words[-1])
end

# Completes the name of an event.
function __tool_events
    tool complete-event (commandline -ct | string replace -r -- '^(--[^=]*)?=?' '=') 2>/dev/null
end

complete -c tool -f
complete -c tool -n __tool_launches -a '(__tool_launched)'
complete -c tool -n __fish_use_subcommand -s h -l help -d 'Show context-sensitive help'

complete -c tool -n __fish_use_subcommand -a measure -d 'Measure what runs'
complete -c tool -n '__tool_command measure' -s h -l help -d 'Show context-sensitive help'
complete -c tool -n '__tool_command measure' -s p -l pid -r -f -a '(__fish_complete_pids)' -d 'These processes'
complete -c tool -n '__tool_command measure' -s o -l output -r -F -d 'Write to FILE'
complete -c tool -n '__tool_command measure' -l root -r -f -a '(__fish_complete_directories)' -d 'Look below DIR'
complete -c tool -n '__tool_command measure' -s e -l event -r -f -a '(__tool_events)' -d 'This event'
complete -c tool -n '__tool_command measure' -l stats -r -f -a 'text json' -d 'Sum up as text or json'
complete -c tool -n '__tool_command measure' -s F -l rate -r -d 'Samples a second'
complete -c tool -n '__tool_command measure' -s q -l quiet -d 'Say nothing'

complete -c tool -n __fish_use_subcommand -a merge -d 'Add files up'
complete -c tool -n '__tool_command merge' -s h -l help -d 'Show context-sensitive help'
complete -c tool -n '__tool_command merge' -F

complete -c tool -n __fish_use_subcommand -a shell -d 'Choose a shell'
complete -c tool -n '__tool_command shell' -s h -l help -d 'Show context-sensitive help'
complete -c tool -n '__tool_command shell' -f -a 'bash zsh'
