package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/yuin/goldmark"
	highlighting "github.com/yuin/goldmark-highlighting/v2"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// repository is where links to files that are no pages lead.
const repository = "https://github.com/interlock-go/lock"

var markdown = goldmark.New(
	goldmark.WithExtensions(
		extension.GFM,
		highlighting.NewHighlighting(highlighting.WithFormatOptions(html.WithClasses(true))),
	),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(scrollingTables{}, 1))),
)

// heading is one of a page, with the text up to the next one.
type heading struct {
	Level           int
	ID, Title, Text string
}

// document is a parsed page.
type document struct {
	source   string
	text     []byte
	root     ast.Node
	headings []heading
	files    []string // of the repository, that the page shows or links to and that the site has a copy of
}

// parse reads a page. Its links lead to pages of the site, copies of files, or the repository.
func parse(root, source string, pages map[string]bool) (*document, error) {
	content, err := os.ReadFile(filepath.Join(root, source))
	if err != nil {
		return nil, err
	}
	context := parser.NewContext(parser.WithIDs(&ids{used: map[string]bool{}}))
	d := &document{source: source, text: content, root: markdown.Parser().Parse(text.NewReader(content), parser.WithContext(context))}
	d.dropBadges()
	err = ast.Walk(d.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Text:
			n.SetSoftLineBreak(n.SoftLineBreak() && !betweenHan(content, n.Segment.Stop))
		case *ast.Link:
			n.Destination, err = d.target(root, n.Destination, pages)
		case *ast.Image:
			n.Destination, err = d.target(root, n.Destination, pages)
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			d.headings = append(d.headings, heading{n.Level, string(id.([]byte)), plain(n, content), ""})
		}
		if len(d.headings) > 0 && !within(n, ast.KindHeading) {
			d.headings[len(d.headings)-1].Text += own(n, content)
		}
		return ast.WalkContinue, err
	})
	if err == nil && len(d.headings) == 0 {
		err = fmt.Errorf("%s has no heading", source)
	}
	return d, err
}

func (d *document) render() (string, error) {
	var out bytes.Buffer
	err := markdown.Renderer().Render(&out, d.text, d.root)
	return out.String(), err
}

// title is the first heading up to a colon.
func (d *document) title() string {
	short, _, _ := strings.Cut(d.headings[0].Title, ":")
	return short
}

// dropBadges removes the links around images of other hosts, which a page of the site must not load.
func (d *document) dropBadges() {
	var badges []ast.Node
	_ = ast.Walk(d.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if image, ok := n.(*ast.Image); ok && entering && bytes.HasPrefix(image.Destination, []byte("https:")) {
			badges = append(badges, n.Parent())
		}
		return ast.WalkContinue, nil
	})
	for _, n := range badges {
		n.Parent().RemoveChild(n.Parent(), n)
	}
}

// target returns the link of the site for one of the repository.
func (d *document) target(root string, destination []byte, pages map[string]bool) ([]byte, error) {
	u, err := url.Parse(string(destination))
	if err != nil || u.Host != "" || u.Path == "" {
		return destination, err
	}
	file := path.Join(path.Dir(d.source), u.Path)
	info, err := os.Stat(filepath.Join(root, file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.source, err)
	}
	here := output(d.source)
	switch {
	case pages[file]:
		u.Path = relative(here, output(file))
	case path.Ext(file) == ".svg" || path.Ext(file) == ".csv":
		d.files = append(d.files, file)
		u.Path = relative(here, copied(file))
	case info.IsDir():
		return []byte(repository + "/tree/main/" + file), nil
	default:
		return []byte(repository + "/blob/main/" + file), nil
	}
	return []byte(u.String()), nil
}

// copied returns the place of the copy of a file in the site.
func copied(file string) string { return strings.TrimPrefix(file, "docs/") }

// plain returns the text of a node and its children without markup.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// own returns the text that a node itself adds to the index of the search: a space before each block.
func own(n ast.Node, source []byte) string {
	switch n := n.(type) {
	case *ast.Text:
		if n.SoftLineBreak() {
			return string(n.Segment.Value(source)) + " "
		}
		return string(n.Segment.Value(source))
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		return " " + string(n.Lines().Value(source))
	}
	if n.Type() == ast.TypeBlock {
		return " "
	}
	return ""
}

// betweenHan reports whether the line break at that place is between Chinese characters or punctuation, which take no
// space between them.
func betweenHan(source []byte, at int) bool {
	before, _ := utf8.DecodeLastRune(bytes.TrimRight(source[:at], "*_`)"))
	after, _ := utf8.DecodeRune(bytes.TrimLeft(source[at:], "\r\n\t >*_`["))
	return wide(before) && wide(after)
}

func wide(r rune) bool {
	return unicode.Is(unicode.Han, r) || unicode.In(r, unicode.P, unicode.S) && r >= 0x2000
}

func within(n ast.Node, kind ast.NodeKind) bool {
	for ; n != nil; n = n.Parent() {
		if n.Kind() == kind {
			return true
		}
	}
	return false
}

// ids names the headings of a page as GitHub does, because the links between pages use those names.
type ids struct{ used map[string]bool }

func (i *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-':
			return '-'
		case r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, string(value))
	unique := name
	for n := 1; i.used[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", name, n)
	}
	i.used[unique] = true
	return []byte(unique)
}

func (i *ids) Put(value []byte) { i.used[string(value)] = true }

// scrollingTables puts each table into an element that scrolls sideways where the screen is too narrow.
type scrollingTables struct{}

func (scrollingTables) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(extast.KindTable, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		tags := "</table></div>\n"
		if entering {
			tags = `<div class="table" tabindex="0"><table>` + "\n"
		}
		_, err := w.WriteString(tags)
		return ast.WalkContinue, err
	})
}
