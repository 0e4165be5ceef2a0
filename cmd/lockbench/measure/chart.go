package measure

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// palette is colour-blind safe (Okabe and Ito, without yellow).
var palette = []color.Color{
	rgb(0x0072b2), rgb(0xd55e00), rgb(0x009e73), rgb(0xcc79a7), rgb(0x56b4e9), rgb(0xe69f00), rgb(0x000000),
}

func rgb(c uint32) color.Color {
	return color.RGBA{R: uint8(c >> 16), G: uint8(c >> 8), B: uint8(c), A: 0xff}
}

func colour(i int) color.Color { return palette[i%len(palette)] }

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.BackgroundColor = color.Transparent // that of the page
	sans := font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(11)}
	for _, s := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		s.Font = sans
	}
	p.Title.TextStyle.Font.Size = vg.Points(12)
	p.Title.Padding = vg.Points(6)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs = vg.Points(8)
	return p
}

// distribution draws the percentiles of the times of each target. It returns "" without
// times.
func distribution(title string, sums []Summary) (template.HTML, error) {
	p := newPlot(title)
	p.X.Label.Text, p.Y.Label.Text = "percentile", "time"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = percentileTicks{}, timeTicks{}
	p.Add(plotter.NewGrid())
	// A logarithmic axis needs a range, of positive values.
	most, shortest, longest := int64(10), int64(math.MaxInt64), int64(0)
	for i, s := range sums {
		n := s.All.Count()
		if n == 0 {
			continue
		}
		most, shortest, longest = max(most, n), min(shortest, s.All.h.Min()), max(longest, s.All.h.Max())
		var points plotter.XYs
		// up to the percentile of a single time
		for x := 1.0; x <= float64(n); x *= 1.05 {
			points = append(points, plotter.XY{X: x, Y: float64(s.All.At(100 * (1 - 1/x)))})
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return "", err
		}
		line.Color, line.Width = colour(i), vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(s.Target, line)
	}
	if longest == 0 {
		return "", nil // nothing to draw
	}
	p.X.Min, p.X.Max = 1, float64(most)
	p.Y.Min, p.Y.Max = float64(max(shortest, 100))/1.2, float64(longest)*1.2
	return svg(p)
}

// percentileTicks are the ticks of x = 1/(1-q).
type percentileTicks struct{}

func (percentileTicks) Ticks(_, most float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 2, Label: "50 %"}}
	for x, label := 10.0, "90 %"; x <= most*1.0001; x *= 10 {
		ticks = append(ticks, plot.Tick{Value: x, Label: label})
		switch label {
		case "90 %":
			label = "99 %"
		case "99 %":
			label = "99.9 %"
		default:
			label = label[:len(label)-2] + "9 %"
		}
	}
	return ticks
}

// timeTicks are 1, 2 and 5 of each decade, as durations, or 1 of each if the decades are many.
type timeTicks struct{}

func (timeTicks) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	factors := []float64{1, 2, 5}
	if most/max(least, 1) > 1e3 {
		factors = factors[:1]
	}
	for decade := math.Pow(10, math.Floor(math.Log10(max(least, 1)))); decade <= most; decade *= 10 {
		for _, f := range factors {
			if v := f * decade; v >= least && v <= most {
				ticks = append(ticks, plot.Tick{Value: v, Label: nanoseconds(v)})
			}
		}
	}
	return ticks
}

func nanoseconds(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%g s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%g ms", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%g µs", v/1e3)
	}
	return fmt.Sprintf("%g ns", v)
}

// size matches the width and height in points that gonum writes. Without them the picture
// has the width that the page gives it.
var size = regexp.MustCompile(`<svg width="([0-9.]+)pt" height="([0-9.]+)pt"`)

func svg(p *plot.Plot) (template.HTML, error) {
	c := vgsvg.New(vg.Points(420), vg.Points(260))
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	out := b.String()
	if i := bytes.Index(b.Bytes(), []byte("<svg")); i > 0 {
		out = out[i:] // HTML allows no XML header here
	}
	out = size.ReplaceAllString(out, `<svg role="img" aria-label=`+strconv.Quote(template.HTMLEscapeString(p.Title.Text)))
	return template.HTML(out), nil //nolint:gosec // the drawing library escapes its text
}

// chart draws a figure over N, with a line for each target.
func (g *Growth) chart(figure string) (template.HTML, error) {
	p := newPlot(sentence(fmt.Sprintf("%s: %s", g.Kind, figure)))
	p.X.Label.Text, p.Y.Label.Text = g.Unit, figure
	p.Add(plotter.NewGrid())
	points := map[string]plotter.XYs{}
	var targets []string
	most, ticks := 0.0, plot.ConstantTicks{}
	for _, row := range g.Rows {
		v, ok := row.Values[figure]
		if !ok {
			continue
		}
		if points[row.Target] == nil {
			targets = append(targets, row.Target)
		}
		// One more than N, since a logarithmic axis has no zero.
		x := float64(row.N + 1)
		points[row.Target] = append(points[row.Target], plotter.XY{X: x, Y: v})
		most = max(most, v)
		if !slices.ContainsFunc(ticks, func(t plot.Tick) bool { return t.Value == x }) {
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.Itoa(row.N)})
		}
	}
	if len(targets) == 0 {
		return "", nil
	}
	for i, name := range targets {
		line, dots, err := plotter.NewLinePoints(points[name])
		if err != nil {
			return "", err
		}
		line.Color, line.Width, dots.Color = colour(i), vg.Points(1.5), colour(i)
		p.Add(line, dots)
		p.Legend.Add(name, line)
	}
	slices.SortFunc(ticks, func(a, b plot.Tick) int { return cmp.Compare(a.Value, b.Value) })
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
	p.X.Min, p.X.Max = ticks[0].Value/1.5, ticks[len(ticks)-1].Value*1.5
	p.Y.Min, p.Y.Max = 0, max(most, 1e-9)*1.4 // the legend is above the lines
	return svg(p)
}
