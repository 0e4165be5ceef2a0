package main

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/styles"
)

//go:embed assets
var assets embed.FS

// words are those of the page's frame, by language.
var words = map[string]map[string]string{
	"en": {"search": "Search", "menu": "Menu", "onPage": "On this page", "other": "中文", "source": "Source of this page", "none": "Nothing found for"},
	"zh": {"search": "搜索", "menu": "目录", "onPage": "本页内容", "other": "English", "source": "本页源文件", "none": "没有找到"},
}

// view is what the template of a page reads.
type view struct {
	Language, Title, Root, Source, Other string
	Words                                map[string]string
	Menu                                 []menu
	Headings                             []heading
	Body                                 template.HTML
}

type menu struct {
	Title string
	Items []item
}

type item struct {
	Title, Link string
	Current     bool
}

// entry is one of the search's index.
type entry struct {
	Page    string `json:"page"`
	Heading string `json:"heading"`
	Link    string `json:"link"`
	Text    string `json:"text"`
}

// build writes the site of the repository at root into folder, in place of what is there.
func build(root, folder string) error {
	files, err := sources(root)
	if err != nil {
		return err
	}
	pages := map[string]bool{}
	for _, file := range files {
		pages[file] = true
	}
	documents := map[string]*document{}
	for _, file := range files {
		if documents[file], err = parse(root, file, pages); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for _, file := range files {
		if err := writePage(folder, documents, documents[file]); err != nil {
			return err
		}
		for _, f := range documents[file].files {
			if err := copyFile(filepath.Join(root, f), filepath.Join(folder, copied(f))); err != nil {
				return err
			}
		}
	}
	return errors.Join(writeStyle(folder), writeScript(folder), writeIndex(folder, files, documents))
}

var page = template.Must(template.ParseFS(assets, "assets/page.html"))

func writePage(folder string, documents map[string]*document, d *document) error {
	body, err := d.render()
	if err != nil {
		return err
	}
	here, lang := output(d.source), language(d.source)
	v := view{
		Language: lang, Title: d.title(), Root: relative(here, ""), Source: repository + "/blob/main/" + d.source,
		Words: words[lang], Body: template.HTML(body), //nolint:gosec // rendered from this repository, without raw HTML
	}
	if other := translation(d.source); documents[other] != nil {
		v.Other = relative(here, output(other))
	}
	for _, g := range menus[lang] {
		m := menu{Title: g.Title}
		for _, file := range g.Files {
			m.Items = append(m.Items, item{cmp.Or(short[file], documents[file].title()), relative(here, output(file)), file == d.source})
		}
		v.Menu = append(v.Menu, m)
	}
	for _, h := range d.headings {
		if h.Level == 2 {
			v.Headings = append(v.Headings, h)
		}
	}
	var out bytes.Buffer
	if err := page.Execute(&out, v); err != nil {
		return err
	}
	return write(filepath.Join(folder, here), out.Bytes())
}

// writeStyle writes the style sheet, with the colors of code for light and for dark screens.
func writeStyle(folder string) error {
	text, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	out := bytes.NewBuffer(text)
	formatter := html.New(html.WithClasses(true))
	for _, s := range []struct{ media, style string }{{"light", "github"}, {"dark", "github-dark"}} {
		out.WriteString("@media (prefers-color-scheme: " + s.media + ") {\n")
		if err := formatter.WriteCSS(out, styles.Get(s.style)); err != nil {
			return err
		}
		out.WriteString("}\n")
	}
	return write(filepath.Join(folder, "style.css"), out.Bytes())
}

func writeScript(folder string) error {
	text, err := assets.ReadFile("assets/search.js")
	if err != nil {
		return err
	}
	return write(filepath.Join(folder, "search.js"), text)
}

// writeIndex writes the index of each language as a script: a page that is opened as a file may load no JSON.
func writeIndex(folder string, files []string, documents map[string]*document) error {
	indexes := map[string][]entry{}
	for _, file := range files {
		d, lang := documents[file], language(file)
		for i, h := range d.headings {
			e := entry{Page: d.title(), Heading: h.Title, Link: output(file), Text: strings.Join(strings.Fields(h.Text), " ")}
			if i > 0 {
				e.Link += "#" + h.ID
			}
			indexes[lang] = append(indexes[lang], e)
		}
	}
	for lang, entries := range indexes {
		text, err := json.Marshal(entries)
		if err != nil {
			return err
		}
		text = append([]byte("window.searchIndex = "), text...)
		if err := write(filepath.Join(folder, "index-"+lang+".js"), text); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return write(to, text)
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}
