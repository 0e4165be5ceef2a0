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

// menus has the pages of the menu by language. Decisions are not in it: their own index lists them.
var menus = map[string][]group{
	"en": {
		{"Begin", []string{"README.md", "docs/tutorial.md", "docs/guides.md", "docs/choosing.md"}},
		{"Use", []string{"docs/sharing.md", "docs/fencing.md", "docs/operations.md", "docs/observability.md", "docs/migrating.md"}},
		{"Backends", backends("docs")},
		{"Guarantees", []string{"docs/contract.md", "docs/matrix.md", "docs/faults.md", "docs/performance.md", "docs/performance-shares.md", "docs/performance-growth.md", "docs/safety-steps.md"}},
		{"Develop", []string{
			"docs/writing-a-driver.md", "ARCHITECTURE.md", "docs/adr/README.md", "docs/glossary.md", "docs/compatibility.md",
			"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
		}},
	},
	"zh": {
		{"开始", []string{"README.zh-CN.md", "docs/zh/choosing.md", "docs/zh/sharing.md", "docs/zh/operations.md"}},
		{"后端", backends("docs/zh")},
	},
}

// short has the titles in the menu of pages with long ones.
var short = map[string]string{
	"docs/performance-shares.md": "Performance of shares", "docs/performance-growth.md": "Costs over numbers",
	"docs/matrix.md": "Test results", "docs/faults.md": "Faults", "docs/safety-steps.md": "Safety steps",
	"README.md": "Overview", "README.zh-CN.md": "概览",
}

func backends(folder string) (files []string) {
	for _, name := range []string{"memory", "file", "redis", "redlock", "postgresql", "mysql", "etcd", "zookeeper", "nats", "memcached", "s3"} {
		files = append(files, path.Join(folder, "backends", name+".md"))
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
