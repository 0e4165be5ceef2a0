package draw

// A Step is one line of a sequence diagram.
type Step func(*sequence)

// A sequence is a sequence diagram while it is drawn, from top to bottom.
type sequence struct {
	c      *Canvas
	actors []string
	y      int
	since  map[int]bar // the bars that have begun, by actor
	bars   []bar
}

// A bar on the line of an actor says that it holds, or is stopped.
type bar struct {
	actor, y, end int
	kind          Kind
}

// Sequence draws a sequence diagram of the actors, who have a column each, from y on.
// It returns where it ends.
func Sequence(c *Canvas, y int, actors []string, steps ...Step) int {
	s := &sequence{c: c, actors: actors, since: map[int]bar{}}
	high := 0
	for i := range actors {
		high = max(high, boxHeight(s.column()-12, actors[i]))
	}
	for i, a := range actors {
		c.Box(s.center(i)-s.column()/2+6, y, s.column()-12, high, Plain, a)
	}
	s.y = y + high + 10
	before := c.body.String()
	c.body.Reset()
	for _, step := range steps {
		step(s)
	}
	for i := range actors {
		End(i)(s)
	}
	drawn := c.body.String()
	c.body.Reset()
	c.body.WriteString(before)
	for i := range actors {
		c.Line(s.center(i), y+high, s.center(i), s.y, "dash")
	}
	for _, b := range s.bars {
		c.Rect(s.center(b.actor)-5, b.y, 10, b.end-b.y, b.kind)
	}
	c.body.WriteString(drawn)
	return s.y
}

func (s *sequence) column() int { return (Width - 2*margin) / len(s.actors) }

func (s *sequence) center(i int) int { return margin + s.column()*i + s.column()/2 }

// Send is a message from one actor to another.
func Send(from, to int, text string) Step { return send(from, to, Plain, text) }

// Grant is a message that makes its receiver the holder.
func Grant(from, to int, text string) Step { return send(from, to, Good, text) }

// Refuse is a message that is refused, or that refuses.
func Refuse(from, to int, text string) Step { return send(from, to, Bad, text) }

func send(from, to int, kind Kind, text string) Step {
	return func(s *sequence) {
		left, right := s.center(min(from, to)), s.center(max(from, to))
		s.y += s.c.Text(left+8, s.y, right-left-16, "middle", "", text)
		gap := 6
		x1, x2 := s.center(from), s.center(to)
		s.c.Arrow(x1+gap*sign(x2-x1), s.y+4, x2-gap*sign(x2-x1), s.y+4, kind)
		s.y += 16
	}
}

// Note is a box below the columns from one actor to another.
func Note(from, to int, kind Kind, text string) Step {
	return func(s *sequence) {
		x, end := s.center(from)-s.column()/2+6, s.center(to)+s.column()/2-6
		s.y += s.c.Box(x, s.y, end-x, 0, kind, text) + 10
	}
}

// Part is a heading over all columns.
func Part(text string) Step {
	return func(s *sequence) {
		s.y += 6
		s.y += s.c.Text(margin, s.y, Width-2*margin, "middle", "bold", text) + 6
	}
}

// Begin begins a bar of the actor, and ends the one before.
func Begin(actor int, kind Kind) Step {
	return func(s *sequence) {
		End(actor)(s)
		s.since[actor] = bar{actor: actor, y: s.y - 10, kind: kind}
	}
}

// End ends the bar of the actor.
func End(actor int) Step {
	return func(s *sequence) {
		if b, ok := s.since[actor]; ok {
			delete(s.since, actor)
			b.end = s.y - 8
			s.bars = append(s.bars, b)
		}
	}
}
