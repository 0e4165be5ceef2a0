package backend

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// URL is a parsed backend URL:
//
//	scheme://[user[:password]@]host[:port][,host[:port]...][/path][?param=value&...]
//	scheme:path[?param=value&...]
type URL struct {
	Scheme string
	User   *url.Userinfo // nil if absent; holds the password
	Hosts  []string      // each host or host:port; empty if absent
	Path   string        // decoded, with its leading slash if there was a host part
	Params *Params
}

const urlForm = "scheme://[user[:password]@]host[:port][,host[:port]...][/path][?param=value&...], " +
	"special characters in user and password percent-encoded"

// ParseURL splits a URL. Its errors match ErrInvalid and never contain a password.
func ParseURL(s string) (*URL, error) {
	scheme, _, ok := strings.Cut(s, ":")
	if !ok || scheme == "" || strings.ContainsAny(scheme, "/?#@") {
		return nil, fmt.Errorf("%w URL: no scheme; want %s", ErrInvalid, urlForm)
	}
	one, more := splitHosts(s)
	u, err := url.Parse(one)
	for _, h := range more {
		if o, oerr := url.Parse("x://" + h); oerr != nil || o.Host != h {
			err = ErrInvalid
		}
	}
	if err != nil || u.Fragment != "" {
		// err may quote any part of the URL, the password included
		return nil, fmt.Errorf("%w URL with scheme %.20q: malformed; want %s", ErrInvalid, scheme, urlForm)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if splitsPassword(u, q) {
		return nil, fmt.Errorf("%w URL with scheme %.20q: malformed; want %s", ErrInvalid, scheme, urlForm)
	}
	if err != nil {
		return nil, fmt.Errorf("%w URL with scheme %.20q: malformed query; want ?param=value&param=value", ErrInvalid, scheme)
	}
	out := &URL{Scheme: u.Scheme, User: u.User, Path: u.Path, Params: NewParams(q)}
	if u.Opaque != "" {
		if out.Path, err = url.PathUnescape(u.Opaque); err != nil {
			return nil, fmt.Errorf("%w URL with scheme %.20q: malformed path", ErrInvalid, scheme)
		}
	}
	if u.Host != "" || len(more) > 0 {
		out.Hosts = append([]string{u.Host}, more...)
		if slices.Contains(out.Hosts, "") {
			return nil, Invalid("URL hosts", strings.Join(out.Hosts, ","), "host[:port] separated by single commas")
		}
	}
	return out, nil
}

// splitsPassword reports whether the path or the name of a parameter is a part of a password, as in
// "user:pass/word@host".
func splitsPassword(u *url.URL, q url.Values) bool {
	for name := range q {
		if strings.Contains(name, "@") {
			return true
		}
	}
	return strings.Contains(u.Host, ":") && u.User == nil && strings.Contains(u.EscapedPath(), "@")
}

// splitHosts removes all hosts but the first from a URL: net/url accepts one host.
func splitHosts(s string) (one string, more []string) {
	start := strings.Index(s, "://")
	if start < 0 {
		return s, nil
	}
	start += len("://")
	end := len(s)
	if i := strings.IndexAny(s[start:], "/?#"); i >= 0 {
		end = start + i
	}
	if i := strings.LastIndexByte(s[start:end], '@'); i >= 0 {
		start += i + 1
	}
	hosts := strings.Split(s[start:end], ",")
	return s[:start] + hosts[0] + s[end:], hosts[1:]
}

// HostPort returns a host of a URL with a port: with its own, or with port if it has none. A host
// without a port may be an IPv6 address with or without brackets, and has them in the result.
func HostPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// Params reads the query of a URL. Each getter marks its parameter as known, and returns
// the default if it is absent, malformed or repeated. Err then returns an error for the first
// malformed, repeated or unknown one. Params is not safe for concurrent use.
type Params struct {
	q     url.Values
	known []string
	err   error
}

// NewParams returns the parameters of a parsed query.
func NewParams(q url.Values) *Params { return &Params{q: q} }

// read returns a parameter as parse reads it, or def if it is absent or parse returns false.
func read[T any](p *Params, name, accepted string, def T, parse func(string) (T, bool)) T {
	p.known = append(p.known, name)
	given := p.q[name]
	switch {
	case len(given) == 0:
		return def
	case len(given) > 1:
		p.fail(name, fmt.Sprintf("given %d times", len(given)), accepted+", once") // the values may be secret
		return def
	}
	v, ok := parse(given[0])
	if !ok {
		p.fail(name, given[0], accepted)
		return def
	}
	return v
}

func (p *Params) fail(name, value, accepted string) {
	if p.err == nil {
		p.err = Invalid("URL parameter "+name, value, accepted)
	}
}

// String reads a parameter as it is.
func (p *Params) String(name, def string) string {
	return read(p, name, "text", def, func(v string) (string, bool) { return v, true })
}

// Duration reads a positive duration such as 500ms, 30s or 1h.
func (p *Params) Duration(name string, def time.Duration) time.Duration {
	return read(p, name, "a positive duration such as 500ms, 30s or 1h", def, func(v string) (time.Duration, bool) {
		d, err := time.ParseDuration(v)
		return d, err == nil && d > 0
	})
}

// Int reads a whole number from least to most.
func (p *Params) Int(name string, def, least, most int) int {
	return read(p, name, fmt.Sprintf("a whole number from %d to %d", least, most), def, func(v string) (int, bool) {
		n, err := strconv.Atoi(v)
		return n, err == nil && n >= least && n <= most
	})
}

// Bool reads true or false.
func (p *Params) Bool(name string, def bool) bool {
	return read(p, name, "true or false", def, func(v string) (bool, bool) {
		return v == "true", v == "true" || v == "false"
	})
}

// Enum reads one of the allowed words.
func (p *Params) Enum(name, def string, allowed ...string) string {
	return read(p, name, "one of "+strings.Join(allowed, ", "), def, func(v string) (string, bool) {
		return v, slices.Contains(allowed, v)
	})
}

// Err returns an ErrInvalid with the first malformed or repeated parameter, or with an unknown
// one and those that are known. It is nil if there is none. The error does not contain the value
// of an unknown parameter, which may be a misspelt password.
func (p *Params) Err() error {
	if p.err != nil {
		return p.err
	}
	known := slices.Clone(p.known)
	slices.Sort(known)
	known = slices.Compact(known)
	var unknown []string
	for name := range p.q {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("%w URL parameter %q: unknown; accepted: %s", ErrInvalid, unknown[0], strings.Join(known, ", "))
}
