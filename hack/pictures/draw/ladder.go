package draw

// A Rung is a question, and what follows if the answer is yes.
type Rung struct {
	Question, Answer string
	Kind             Kind // of the answer
}

// Ladder draws questions below each other from y on, their answers to the right, and last what
// follows if each answer is no. It returns where it ends.
func Ladder(c *Canvas, y int, yes, no string, last string, rungs ...Rung) int {
	const (
		left  = margin
		w     = 248
		right = 320
		w2    = Width - margin - right
	)
	for _, r := range rungs {
		high := max(boxHeight(w, r.Question), boxHeight(w2, r.Answer))
		c.Box(left, y, w, high, Plain, r.Question)
		c.Box(right, y, w2, high, r.Kind, r.Answer)
		c.Arrow(left+w, y+high/2, right, y+high/2, Good)
		c.Text(left+w+2, y+high/2-20, right-left-w-12, "middle", "", yes)
		c.Arrow(left+w/2, y+high, left+w/2, y+high+26, Plain)
		c.Text(left+w/2+8, y+high+2, 80, "start", "", no)
		y += high + 26
	}
	return y + c.Box(left, y, Width-2*margin, 0, Accent, last)
}
