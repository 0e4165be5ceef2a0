package draw

import (
	"errors"
	"fmt"
	"html"
)

// A Picture is one file of docs/images.
type Picture struct {
	Name  string // of the file, without .svg
	Title string
	Alt   string // what the picture shows, for readers who do not see it; pages have the same text
	Draw  func(*Canvas)
}

// style has the colours of both schemes. A browser evaluates the media query in an <img> too.
const style = `<style>
text{font:15px -apple-system,"Segoe UI",Helvetica,Arial,"DejaVu Sans","Noto Sans CJK SC",sans-serif;fill:#1f2328;` +
	`paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.bold{font-weight:600}
.faint{fill:#59636e}
.on-plain,.on-good,.on-warn,.on-bad,.on-accent,.on-dim{stroke:none}
.ground{fill:#fff;stroke:#d1d9e0}
.plain{fill:#f6f8fa;stroke:#818b98}
.good{fill:#dafbe1;stroke:#1a7f37}
.warn{fill:#fff8c5;stroke:#9a6700}
.bad{fill:#ffebe9;stroke:#cf222e}
.accent{fill:#ddf4ff;stroke:#0969da}
.patch{fill:#fff}
.dim{fill:#fff;stroke:#818b98;stroke-dasharray:4 4}
.line,.dash{fill:none;stroke:#59636e;stroke-width:1.5}
.dash{stroke-dasharray:3 5;stroke-width:1}
.head{fill:#59636e}
.l-good{stroke:#1a7f37}.h-good{fill:#1a7f37}
.l-bad{stroke:#cf222e}.h-bad{fill:#cf222e}
.l-accent{stroke:#0969da}.h-accent{fill:#0969da}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc;stroke:#0d1117}
.faint{fill:#b0b8c1}
.on-plain,.on-good,.on-warn,.on-bad,.on-accent,.on-dim{stroke:none}
.ground{fill:#0d1117;stroke:#3d444d}
.plain{fill:#212830;stroke:#9198a1}
.good{fill:#12401f;stroke:#3fb950}
.warn{fill:#463407;stroke:#d29922}
.bad{fill:#5a1a1e;stroke:#f85149}
.accent{fill:#0f3460;stroke:#4493f8}
.patch{fill:#0d1117}
.dim{fill:#0d1117;stroke:#9198a1}
.line,.dash{stroke:#9198a1}
.head{fill:#9198a1}
.l-good{stroke:#3fb950}.h-good{fill:#3fb950}
.l-bad{stroke:#f85149}.h-bad{fill:#f85149}
.l-accent{stroke:#4493f8}.h-accent{fill:#4493f8}
}
</style>
`

// Render returns the file. It fails if a text does not fit into its place, overlaps another one,
// or is outside of the picture.
func (p Picture) Render() ([]byte, error) {
	c := &Canvas{bottom: margin}
	p.Draw(c)
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	height := c.bottom + margin
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">
<!-- Written by make images from hack/pictures. Do not edit. -->
<title id="t">%s</title>
<desc id="d">%s</desc>
%s<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>
%s</svg>
`, Width, height, Width, height, html.EscapeString(p.Title), html.EscapeString(p.Alt), style, Width-1, height-1, c.body.String()), nil
}

func (c *Canvas) check() error {
	var errs []error
	for _, problem := range c.problems {
		errs = append(errs, errors.New(problem))
	}
	for i, a := range c.texts {
		if a.x < 4 || a.x+a.w > Width-4 {
			errs = append(errs, fmt.Errorf("%q is from %d to %d, outside of the picture", a.text, a.x, a.x+a.w))
		}
		for _, b := range c.texts[:i] {
			if a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h {
				errs = append(errs, fmt.Errorf("%q and %q overlap", a.text, b.text))
			}
		}
	}
	return errors.Join(errs...)
}
