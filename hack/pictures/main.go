// Command pictures writes the pictures of the documents into docs/images, one file for each
// picture. Each has a source file here; package draw has the layouts.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/interlock-go/lock/hack/pictures/draw"
)

// pictures returns all pictures. root is the folder of the repository, whose figures some of
// them show.
func pictures(root string) ([]draw.Picture, error) {
	all := []draw.Picture{
		lease, staleHolder, provisional, architecture, choosing, migration, quorum, admission,
		handOffLocal, handOffRedis, handOffRedlock, handOffPostgres, handOffMySQL, handOffEtcd, handOffZooKeeper,
	}
	for _, plot := range plots {
		p, err := plot.picture(root)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func main() {
	log.SetFlags(0)
	all, err := pictures(".")
	if err != nil {
		log.Fatal(err)
	}
	folder := filepath.Join("docs", "images")
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a folder of the repository
		log.Fatal(err)
	}
	for _, p := range all {
		content, err := p.Render()
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, p.Name+".svg"), content, 0o644); err != nil { //nolint:gosec // a file of the repository
			log.Fatal(err)
		}
	}
}
