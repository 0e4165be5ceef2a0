package main

import (
	"strconv"
	"strings"
)

// repeated is a flag that may be given several times.
type repeated []string

func (r *repeated) String() string     { return strings.Join(*r, " ") }
func (r *repeated) Set(s string) error { *r = append(*r, s); return nil }
func (*repeated) Type() string         { return "[NAME=]URL" }

// list is a flag for words, separated by commas.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = strings.Split(s, ","); return nil }
func (*list) Type() string         { return "words" }

// numbers is a flag for numbers, separated by commas.
type numbers []int

func (n *numbers) String() string {
	var out []string
	for _, v := range *n {
		out = append(out, strconv.Itoa(v))
	}
	return strings.Join(out, ",")
}

func (n *numbers) Set(s string) error {
	*n = nil
	for word := range strings.SplitSeq(s, ",") {
		v, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		*n = append(*n, v)
	}
	return nil
}
func (*numbers) Type() string { return "numbers" }
