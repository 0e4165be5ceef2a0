// Package draw has the layouts of the pictures of the documents: boxes and arrows, sequences,
// timelines, ladders of questions, rows of places and bars. It writes SVG that has its own light
// and dark colours, in a width that a telephone shows without unreadable text.
package draw

import (
	"fmt"
	"html"
	"strings"
)

// Width is the width of every picture, and margin what stays free at its sides, in pixels.
const (
	Width  = 560
	margin = 16
)

// A Kind is the meaning of a box, a bar or an arrow, which has a colour.
type Kind string

// The kinds.
const (
	Plain  Kind = "plain"
	Good   Kind = "good"   // a holder, a trusted lease, a permitted request
	Warn   Kind = "warn"   // a margin, a provisional grant
	Bad    Kind = "bad"    // a loss, a refusal
	Accent Kind = "accent" // what a picture is about
	Dim    Kind = "dim"    // what is not in use
)

// A rect is the place of a text.
type rect struct {
	x, y, w, h int
	text       string
}

// A Canvas collects what a picture consists of, from top to bottom.
type Canvas struct {
	body     strings.Builder
	texts    []rect
	problems []string
	bottom   int
}

// reach makes the picture at least as high as y and its margin.
func (c *Canvas) reach(y int) { c.bottom = max(c.bottom, y) }

// Bottom returns where the lowest part ends.
func (c *Canvas) Bottom() int { return c.bottom }

func (c *Canvas) printf(format string, args ...any) { fmt.Fprintf(&c.body, format+"\n", args...) }

// Text writes s between x and x+w, from y on, and returns its height. align is "start",
// "middle" or "end".
func (c *Canvas) Text(x, y, w int, align, class, s string) int {
	bold := strings.Contains(class, "bold")
	lines := wrap(s, w, bold)
	for i, line := range lines {
		size, at, left := width(line, bold), x, x
		switch align {
		case "middle":
			at, left = x+w/2, x+(w-size)/2
		case "end":
			at, left = x+w, x+w-size
		}
		c.texts = append(c.texts, rect{left, y + i*lineHeight, size, lineHeight - 2, line})
		if size > w {
			c.problems = append(c.problems, fmt.Sprintf("%q needs %d pixels and has %d", line, size, w))
		}
		c.printf(`<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`, class, at, y+i*lineHeight+15, align, html.EscapeString(line))
	}
	c.reach(y + len(lines)*lineHeight)
	return len(lines) * lineHeight
}

// textHeight returns the height of s in a box of width w.
func textHeight(s string, w int, class string) int {
	return len(wrap(s, w, strings.Contains(class, "bold"))) * lineHeight
}

const padding = 8 // within boxes

// boxHeight returns the height of a box of width w with s.
func boxHeight(w int, s string) int { return textHeight(s, w-2*padding, "") + 2*padding - 2 }

// Box draws a box of width w and height h with s in its middle. If h is less than s needs, it is
// as high as s needs. Box returns the height.
func (c *Canvas) Box(x, y, w, h int, kind Kind, s string) int {
	need := boxHeight(w, s)
	h = max(h, need)
	c.Rect(x, y, w, h, kind)
	c.Text(x+padding, y+padding+(h-need)/2, w-2*padding, "middle", "on-"+string(kind), s)
	return h
}

// Rect draws a box without a text.
func (c *Canvas) Rect(x, y, w, h int, kind Kind) {
	if x < 0 || x+w > Width {
		c.problems = append(c.problems, fmt.Sprintf("a box from %d to %d is not within the picture", x, x+w))
	}
	c.printf(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="5"/>`, kind, x, y, w, h)
	c.reach(y + h)
}

// Line draws a line; class is "line" or "dash".
func (c *Canvas) Line(x1, y1, x2, y2 int, class string) {
	c.printf(`<path class="%s" d="M%d %dL%d %d"/>`, class, x1, y1, x2, y2)
	c.reach(max(y1, y2))
}

// Arrow draws a horizontal or vertical arrow.
func (c *Canvas) Arrow(x1, y1, x2, y2 int, kind Kind) {
	c.printf(`<path class="line l-%s" d="M%d %dL%d %d"/>`, kind, x1, y1, x2, y2)
	dx, dy := sign(x2-x1), sign(y2-y1)
	c.printf(`<path class="head h-%s" d="M%d %dL%d %dL%d %dZ"/>`, kind, x2, y2,
		x2-9*dx-5*dy, y2-9*dy-5*dx, x2-9*dx+5*dy, y2-9*dy+5*dx)
	c.reach(max(y1, y2))
}

func sign(n int) int { return min(1, max(-1, n)) }
