package lockcmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (a *App) completionCommand() *Command {
	shells := slices.Sorted(maps.Keys(completionScripts))
	return &Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell",
		Long:  "Print the script that completes commands, flags, URLs and the names of held locks in a\nshell: " + strings.Join(shells, ", ") + ".",
		Example: `  source <(lockctl completion bash)
  lockctl completion zsh > "${fpath[1]}/_lockctl"
  lockctl completion fish > ~/.config/fish/completions/lockctl.fish`,
		Args: func(c *Command, args Args) error {
			if len(args.List) != 1 || completionScripts[args.List[0]] == "" {
				return Usagef("invalid arguments %q for %s: want one of %s", args.List, c.Name(), strings.Join(shells, ", "))
			}
			return nil
		},
		Complete: func(context.Context, Args, string) []string { return shells },
		Run: func(_ context.Context, args []string) error {
			_, err := fmt.Fprint(a.Out, a.nameHelp(completionScripts[args[0]]))
			return err
		},
	}
}

// completionScripts call the hidden command __complete. Bash splits words at colons and
// equal signs, so its script removes from a candidate what is before the last of them.
var completionScripts = map[string]string{
	"bash": `__start_lockctl() {
	local line=${COMP_LINE:0:COMP_POINT} words cur candidate
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	cur=${words[${#words[@]}-1]}
	COMPREPLY=()
	while IFS=$'\t' read -r candidate _; do
		if [[ $candidate == :files ]]; then
			compopt -o default
			continue
		fi
		candidate=${candidate#"${cur%"${cur##*[:=]}"}"}
		[[ $candidate == */ ]] && compopt -o nospace
		COMPREPLY+=("$(printf %q "$candidate")")
	done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F __start_lockctl lockctl
`,
	"zsh": `#compdef lockctl
_lockctl() {
	local -a found
	local value text
	while IFS=$'\t' read -r value text; do
		if [[ $value == :files ]]; then
			_files
			return
		fi
		found+=("${value//:/\\:}:$text")
	done < <($words[1] __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)
	_describe value found
}
if [[ $funcstack[1] == _lockctl ]]; then
	_lockctl "$@"
else
	compdef _lockctl lockctl
fi
`,
	"fish": `function __lockctl_complete
	set -l words (commandline -opc)
	set -l word (commandline -ct)
	set -l found ($words[1] __complete $words[2..-1] "$word" 2>/dev/null)
	if test "$found" = ":files"
		__fish_complete_path "$word"
	else if set -q found[1]
		printf '%s\n' $found
	end
end
complete -c lockctl -f -a '(__lockctl_complete)'
`,
	"powershell": `Register-ArgumentCompleter -Native -CommandName lockctl -ScriptBlock {
	param($word, $ast, $position)
	$words = @($ast.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
	if ($word -eq '') { $words += '' }
	& "$($ast.CommandElements[0])" __complete @words 2>$null | Where-Object { $_ -ne ':files' } | ForEach-Object {
		$value, $text = $_ -split "` + "`" + `t", 2
		if (-not $text) { $text = $value }
		[System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $text)
	}
}
`,
}
