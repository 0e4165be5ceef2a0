package lockcmd

import (
	"strings"
	"testing"
)

func TestShareFlags(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{ // a part of the error, "" for none
		"--read":              "",
		"--permits 1/10":      "",
		"--permits 10/10":     "",
		"--permits 1024/1024": "",
		"--permits 0/10":      "want K/N with 1 <= K <= N <= 1024",
		"--permits 11/10":     "want K/N",
		"--permits 1/0":       "want K/N",
		"--permits 0/0":       "want K/N",
		"--permits -1/3":      "want K/N",
		"--permits 1/1025":    "want K/N",
		"--permits 3":         "want K/N",
		"--permits 1/2/3":     "want K/N",
		"--permits a/b":       "want K/N",
	} {
		err := Program{}.Check(append(append([]string{"run", "--url", "mem:"}, strings.Fields(flags)...), "x", "--", "true"))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: got %v, want nil", flags, err)
		case want != "" && (codeOf(err) != ExitUsage || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want a usage error that contains %q", flags, err, want)
		}
	}
	both := share{read: true, permits: permits{1, 10}}
	if err := both.check(); codeOf(err) != ExitUsage || !strings.Contains(err.Error(), "--read and --permits exclude each other") {
		t.Errorf("both flags: got %v, want a usage error that names them", err)
	}
}
