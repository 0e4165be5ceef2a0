package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// group is a part of the menu of one language.
type group struct {
	Title string
	Files []string
}

// menus has the pages of the menu by language: first those for users. Decisions are not in it: their own index lists them.
var menus = map[string][]group{
	"en": {
		{"Use", []string{
			"README.md", "docs/tutorial.md", "docs/guides.md", "docs/choosing.md", "docs/backends/README.md", "docs/sharing.md",
			"docs/fencing.md", "docs/testing.md", "docs/operations.md", "docs/observability.md", "docs/migrating.md",
			"docs/performance.md",
		}},
		{"Backends", backends("docs")},
		{"Administration", administration("docs")},
		{"Reference", []string{"docs/README.md", "docs/compatibility.md", "docs/glossary.md", "CHANGELOG.md", "SECURITY.md"}},
		{"Internals", []string{
			"docs/contract.md", "docs/matrix.md", "docs/faults.md", "docs/safety-steps.md", "docs/performance-shares.md",
			"docs/performance-growth.md", "ARCHITECTURE.md", "docs/adr/README.md", "docs/writing-a-driver.md", "CONTRIBUTING.md",
		}},
	},
	"zh": {
		{"使用", []string{
			"README.zh-CN.md", "docs/zh/choosing.md", "docs/zh/backends/README.md", "docs/zh/sharing.md", "docs/zh/operations.md",
			"docs/zh/README.md",
		}},
		{"后端", backends("docs/zh")},
		{"管理", administration("docs/zh")},
	},
}

// short has the titles in the menu of pages with long ones.
var short = map[string]string{
	"docs/performance-shares.md": "Performance of shares", "docs/performance-growth.md": "Costs over numbers",
	"docs/matrix.md": "Test results", "docs/faults.md": "Faults", "docs/safety-steps.md": "Safety steps",
	"README.md": "Overview", "README.zh-CN.md": "概览",
	"docs/backends/README.md": "What you can rely on", "docs/zh/backends/README.md": "可以依赖什么",
}

func backends(folder string) (files []string) {
	for _, name := range []string{"memory", "file", "redis", "redlock", "postgresql", "mysql", "etcd", "zookeeper", "nats", "memcached", "s3"} {
		files = append(files, path.Join(folder, "backends", name+".md"))
	}
	return files
}

func administration(folder string) (files []string) {
	for _, name := range []string{"redis", "postgresql", "mysql"} {
		files = append(files, path.Join(folder, "backends", name+"-administration.md"))
	}
	return files
}

// sources returns the Markdown files that become pages, relative to root: those of the menus, and all others in docs.
func sources(root string) ([]string, error) {
	var files []string
	listed := map[string]bool{}
	for _, language := range []string{"en", "zh"} {
		for _, g := range menus[language] {
			for _, file := range g.Files {
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					return nil, fmt.Errorf("the menu: %w", err)
				}
				listed[file] = true
				files = append(files, file)
			}
		}
	}
	err := fs.WalkDir(os.DirFS(root), "docs", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".md" || listed[file] {
			return err
		}
		if !strings.HasPrefix(file, "docs/adr/") {
			return fmt.Errorf("%s is in no menu", file)
		}
		files = append(files, file)
		return nil
	})
	return files, err
}

// output returns the place of a page in the site: docs/adr/README.md becomes adr/index.html.
func output(source string) string {
	switch source {
	case "README.zh-CN.md":
		return "zh/index.html"
	case "docs/README.md", "docs/zh/README.md": // the READMEs of the root are the indexes
		source = strings.Replace(source, "README", "contents", 1)
	case "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md":
		source = strings.ToLower(source)
	}
	source = strings.TrimPrefix(source, "docs/")
	folder, name := path.Split(source)
	if name == "README.md" {
		name = "index.md"
	}
	return folder + strings.TrimSuffix(name, ".md") + ".html"
}

func language(source string) string {
	if source == "README.zh-CN.md" || strings.HasPrefix(source, "docs/zh/") {
		return "zh"
	}
	return "en"
}

// translation returns the file of the same content in the other language. It need not exist.
func translation(source string) string {
	switch {
	case source == "README.md":
		return "README.zh-CN.md"
	case source == "README.zh-CN.md":
		return "README.md"
	case language(source) == "zh":
		return strings.Replace(source, "docs/zh/", "docs/", 1)
	}
	return strings.Replace(source, "docs/", "docs/zh/", 1)
}

// relative returns the link from one page of the site to a file of it.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}
