package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/cmd/lockbench/measure"
	"github.com/interlock-go/lock/lockcmd"
)

// openTargets opens the services to measure. The caller closes the targets, also those
// that it returns with an error.
func openTargets(ctx context.Context, a *lockcmd.App, f *benchFlags) ([]measure.Target, error) {
	urls := f.urls
	if len(urls) == 0 {
		u, err := a.URL()
		if err != nil {
			return nil, err
		}
		urls = []string{u}
	}
	var out []measure.Target
	used := func(name string) bool {
		return slices.ContainsFunc(out, func(t measure.Target) bool { return t.Name == name })
	}
	for _, given := range urls {
		name, url := cutName(given)
		u, err := backend.ParseURL(url)
		if err != nil {
			return out, lockcmd.Usagef("%s", lockcmd.Redact(err.Error()))
		}
		if u.Scheme == "mem" && len(u.Hosts) == 0 {
			return out, lockcmd.Usagef("--url %s: each client has a space of its own, so none would exclude another; want mem://NAME", url)
		}
		if name == "" {
			name = u.Scheme
			for n := 2; used(name); n++ {
				name = fmt.Sprintf("%s %d", u.Scheme, n)
			}
		}
		if used(name) {
			return out, lockcmd.Usagef("two targets named %q: want a different name for each --url NAME=URL", name)
		}
		measured, closeProxies := url, func() {}
		if f.delay != 0 {
			if measured, closeProxies, err = measure.Delayed(url, f.delay); err != nil {
				return out, lockcmd.Usagef("%w", err)
			}
		}
		t := measure.Interlock(name, measured)
		t.Close = closeProxies
		if err := t.Watch(ctx, url); err != nil {
			a.Notice("uncounted", fmt.Sprintf("%s: the operations of its server will not be counted: %v", name, err), nil)
		}
		out = append(out, t)
	}
	return out, nil
}

// cutName splits NAME=URL. The first "=" of a URL comes after its first ":".
func cutName(s string) (name, url string) {
	name, url, ok := strings.Cut(s, "=")
	if !ok || name == "" || strings.ContainsAny(name, ":/") {
		return "", s
	}
	return name, url
}

// displayArgs returns the command line without users, passwords and parameters of URLs.
func displayArgs(args []string) []string {
	out := []string{"lockbench"}
	for _, arg := range args[1:] {
		flag, rest := "", arg
		if value, ok := strings.CutPrefix(arg, "--url="); ok {
			flag, rest = "--url=", value
		}
		name, url := cutName(rest)
		if strings.Contains(url, "://") {
			if name != "" {
				name += "="
			}
			rest = name + lockcmd.DisplayURL(url)
		}
		out = append(out, flag+rest)
	}
	return out
}
