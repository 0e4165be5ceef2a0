package conformance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/interlock-go/lock/conformance"
)

func TestMain(m *testing.M) {
	conformance.WorkerMain()
	faultMain()
	os.Exit(m.Run())
}

// keep writes the report into the folder that docs/matrix.md is made from, if the
// environment names one.
func keep(t *testing.T) conformance.Option {
	return conformance.OnReport(func(r *conformance.Report) {
		dir := os.Getenv("LOCK_TEST_REPORTS")
		if dir == "" {
			return
		}
		content, err := r.JSON()
		if err == nil {
			err = os.MkdirAll(dir, 0o750)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, r.Name+".json"), content, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	})
}
