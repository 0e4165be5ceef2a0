package draw

import "fmt"

// A Group is some values under a heading.
type Group struct {
	Heading string
	Values  []Value
}

// A Value is a bar of a plot.
type Value struct {
	Name string
	N    float64
	Kind Kind
}

// Plot draws horizontal bars from y on, on a scale from 0 to limit with a line at each whole
// number. It returns where it ends.
func Plot(c *Canvas, y int, limit int, groups ...Group) int {
	const left, scale = 240, 500 - 240
	at := func(n float64) int { return left + int(n*scale/float64(limit)) }
	top := y + lineHeight
	for i := range limit + 1 {
		c.Text(at(float64(i))-20, y, 40, "middle", "faint", fmt.Sprint(i))
	}
	before := c.body.String()
	c.body.Reset()
	y = top + 4
	for _, g := range groups {
		y += c.Text(margin, y, left-margin-8, "start", "bold", g.Heading) + 2
		for _, v := range g.Values {
			c.Text(margin, y, left-margin-8, "end", "", v.Name)
			c.Rect(left, y+1, at(v.N)-left, 16, v.Kind)
			c.Text(at(v.N)+6, y, 50, "start", "", fmt.Sprintf("%.2f", v.N))
			y += lineHeight + 4
		}
		y += 6
	}
	drawn := c.body.String()
	c.body.Reset()
	c.body.WriteString(before)
	for i := range limit + 1 {
		c.Line(at(float64(i)), top, at(float64(i)), y-4, "dash")
	}
	c.body.WriteString(drawn)
	return y
}
