package main

import (
	"encoding/json"
	"html"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func built(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := build(root, folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// names returns the names that the links of a site may lead to: its files, and the headings of its pages.
func names(t *testing.T, folder string) (files map[string]string, all map[string]bool) {
	t.Helper()
	files, all = map[string]string{}, map[string]bool{}
	err := filepath.WalkDir(folder, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		name, err = filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		files[name], all[name] = string(text), true
		for _, id := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			all[name+"#"+id[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, all
}

func TestLinks(t *testing.T) {
	files, all := names(t, built(t))
	link := regexp.MustCompile(` (?:href|src|data-index)="([^"]*)"`)
	for name, text := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		if n := strings.Count(text, "<h1 "); n != 1 {
			t.Errorf("%s has %d titles, want 1", name, n)
		}
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			decoded, err := url.PathUnescape(html.UnescapeString(l[1]))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			target, heading, _ := strings.Cut(decoded, "#")
			switch {
			case strings.HasPrefix(target, "https:") || strings.HasPrefix(target, "http:"):
				if strings.Contains(l[0], "src=") {
					t.Errorf("%s loads %s from another host", name, l[1])
				}
				continue
			case target == "":
				target = name
			default:
				target = path.Join(path.Dir(name), target)
			}
			if heading != "" {
				target += "#" + heading
			}
			if !all[target] {
				t.Errorf("%s: the link %s leads to nothing", name, l[1])
			}
		}
	}
}

func TestSearchIndex(t *testing.T) {
	files, all := names(t, built(t))
	for lang, want := range map[string]entry{
		"en": {"Redis and Valkey", "Is this safe? The debate, and what can be shown", "backends/redis.html#is-this-safe-the-debate-and-what-can-be-shown", "failover"},
		"zh": {"运维", "运维", "zh/operations.html", "锁"},
	} {
		var index []entry
		if err := json.Unmarshal([]byte(strings.TrimPrefix(files["index-"+lang+".js"], "window.searchIndex = ")), &index); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range index {
			if !all[e.Link] {
				t.Errorf("%s: an entry of %q leads to nothing: %s", lang, e.Heading, e.Link)
			}
			found = found || e.Link == want.Link && e.Page == want.Page && strings.Contains(e.Text, want.Text)
		}
		if !found {
			t.Errorf("%s: no entry has %+v", lang, want)
		}
	}
}

// What would leave a reader without a page, or with a broken link, is an error.
func TestRefused(t *testing.T) {
	for name, change := range map[string]struct{ file, text, want string }{
		"a page in no menu": {"docs/new.md", "# New\n", "docs/new.md is in no menu"},
		"a broken link":     {"docs/adr/0099-new.md", "# New\n\n[x](../absent.md)\n", "absent.md"},
		"no title":          {"docs/adr/0099-new.md", "text\n", "docs/adr/0099-new.md has no heading"},
	} {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			if err := os.CopyFS(filepath.Join(copied, "docs"), os.DirFS(filepath.Join(root, "docs"))); err != nil {
				t.Fatal(err)
			}
			for _, g := range menus["en"] {
				for _, file := range append(g.Files, "README.zh-CN.md") {
					if !strings.HasPrefix(file, "docs/") {
						if err := write(filepath.Join(copied, file), []byte("# Page\n")); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if err := write(filepath.Join(copied, change.file), []byte(change.text)); err != nil {
				t.Fatal(err)
			}
			files, err := sources(copied)
			for _, file := range files {
				if err == nil && file == change.file {
					_, err = parse(copied, file, map[string]bool{})
				}
			}
			if err == nil || !strings.Contains(err.Error(), change.want) {
				t.Errorf("got %v, want an error with %q", err, change.want)
			}
		})
	}
}

func TestHeadingNames(t *testing.T) {
	i := &ids{used: map[string]bool{}}
	for _, c := range []struct{ heading, want string }{
		{"What `Lock` does, in_short", "what-lock-does-in_short"},
		{"Clocks", "clocks"},
		{"Clocks", "clocks-1"},
		{"选择：哪个 后端？", "选择哪个-后端"},
	} {
		if got := string(i.Generate([]byte(c.heading), 0)); got != c.want {
			t.Errorf("%q: got %q, want %q", c.heading, got, c.want)
		}
	}
}

// A line that ends between Chinese characters goes on without a space; every other one, before whatever markup, with one.
func TestLineBreaks(t *testing.T) {
	folder := t.TempDir()
	for text, want := range map[string]string{
		"one\ntwo":                 "one\ntwo",
		"one.\n[two](https://b.c)": "one.\n<a href",
		"one\n`two`":               "one\n<code>two",
		"一\n二，\n三":                 "一二，三",
		"一\n**二**":                 "一<strong>二",
		"一\ntwo\n三":                "一\ntwo\n三",
	} {
		if err := write(filepath.Join(folder, "page.md"), []byte("# Page\n\n"+text+"\n")); err != nil {
			t.Fatal(err)
		}
		d, err := parse(folder, "page.md", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.render(); err != nil || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, %v, want %q in it", text, got, err, want)
		}
	}
}
