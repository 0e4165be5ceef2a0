package main

import (
	"strings"
	"testing"
	"time"
)

// The events are those of a package with a test that passes, one that fails, one that is skipped and two that are left
// out, and of a package that does not build.
const events = `{"Action":"start","Package":"github.com/interlock-go/lock/a"}
{"Action":"run","Package":"github.com/interlock-go/lock/a","Test":"TestFast"}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Test":"TestFast","Output":"=== RUN   TestFast\n"}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Test":"TestFast","Output":"    a_test.go:7: noise of a test that passes\n"}
{"Action":"pass","Package":"github.com/interlock-go/lock/a","Test":"TestFast","Elapsed":0.1}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Test":"TestCase","Output":"    run.go:60: passed in 1.5s\n"}
{"Action":"pass","Package":"github.com/interlock-go/lock/a","Test":"TestCase","Elapsed":99}
{"Action":"run","Package":"github.com/interlock-go/lock/a","Test":"TestParent"}
{"Action":"run","Package":"github.com/interlock-go/lock/a","Test":"TestParent/slow"}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Test":"TestParent/slow","Output":"    a_test.go:9: the reason of the failure\n"}
{"Action":"fail","Package":"github.com/interlock-go/lock/a","Test":"TestParent/slow","Elapsed":12.5}
{"Action":"fail","Package":"github.com/interlock-go/lock/a","Test":"TestParent","Elapsed":12.5}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Test":"TestOld","Output":"    a_test.go:11: left out: redis-7 (LOCK_TEST_ALL=1 runs it)\n"}
{"Action":"skip","Package":"github.com/interlock-go/lock/a","Test":"TestOld","Elapsed":0}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Test":"TestCluster","Output":"    a_test.go:12: left out: Redis Cluster (LOCK_TEST_ALL=1 runs it)\n"}
{"Action":"skip","Package":"github.com/interlock-go/lock/a","Test":"TestCluster","Elapsed":0}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Test":"TestMac","Output":"    a_test.go:13: needs macOS\n"}
{"Action":"skip","Package":"github.com/interlock-go/lock/a","Test":"TestMac","Elapsed":0}
{"Action":"output","Package":"github.com/interlock-go/lock/a","Output":"panic: outside a test\n"}
{"Action":"fail","Package":"github.com/interlock-go/lock/a","Elapsed":12.7}
{"ImportPath":"github.com/interlock-go/lock/b","Action":"build-output","Output":"b.go:1: does not compile\n"}
{"Action":"start","Package":"github.com/interlock-go/lock/b"}
{"Action":"fail","Package":"github.com/interlock-go/lock/b","Elapsed":0}
{"Action":"start","Package":"github.com/interlock-go/lock/c"}
not an event of go test
`

func TestReport(t *testing.T) {
	var out, full strings.Builder
	clock := time.Unix(0, 0)
	r := newReport(&out, &full, func() time.Time { clock = clock.Add(time.Second); return clock })
	if err := read(strings.NewReader(events), r); err != nil {
		t.Fatal(err)
	}
	r.finish()
	for _, want := range []string{
		"  begin  ./a\n",
		"FAIL   ./a  ",
		"the reason of the failure\n",
		"panic: outside a test\n",
		"b.go:1: does not compile\n",
		"FAIL   ./b  ",
		"FAIL   ./c  did not end\n",
		"not an event of go test\n",
		"slowest tests:\n    12.5s  ./a TestParent/slow\n     1.5s  ./a TestCase\n     0.1s  ./a TestFast\n",
		"       1  needs macOS (./a TestMac)\n",
		"not run here: Redis Cluster, redis-7 (make test-all)\n",
		"failed packages: ./a ./b ./c\n",
		"\n2 passed, 2 failed, 3 skipped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in the report", want)
		}
	}
	if strings.Contains(out.String(), "begin  ./c") {
		t.Error("the report has the begin of a package that still waits for its turn")
	}
	if strings.Contains(out.String(), "noise of a test that passes") {
		t.Error("the report has the output of a test that passed")
	}
	if !strings.Contains(full.String(), "noise of a test that passes") {
		t.Error("the complete output lacks that of a test that passed")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
