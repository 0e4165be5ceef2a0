package redislock

import (
	"errors"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/internal/clienttest"
	"github.com/interlock-go/lock/redislock/internal/protocol"
	"github.com/interlock-go/lock/redislock/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// Helpers that the tests of redlock share.
var (
	sharedServer   = redistest.Server
	missing        = redistest.Missing
	freePort       = clienttest.FreePort
	start          = redistest.Start
	startSentinel  = redistest.StartSentinel
	private        = redistest.Private
	newPrefix      = redistest.NewPrefix
	client         = redistest.Client
	request        = redistest.Request
	eventually     = redistest.Eventually
	within         = redistest.Within
	must           = redistest.Must
	take           = redistest.Take
	enqueue        = redistest.Queue
	get            = redistest.Get
	getWithin      = redistest.GetWithin
	released       = redistest.Released
	calls          = redistest.Calls
	closeBackend   = redistest.Close
	newProxy       = redistest.NewProxy
	onScript       = redistest.OnScript
	subscribeHangs = redistest.SubscribeHangs
)

type (
	acquired = redistest.Acquired
	action   = redistest.Action
)

const (
	pass  = redistest.Pass
	drop  = redistest.Drop
	never = redistest.Never
)

func openURL(t testing.TB, url string) *Backend {
	t.Helper()
	return redistest.Open(t, url).(*Backend)
}

// newBackend opens a backend on the shared server.
func newBackend(t testing.TB, prefix string) *Backend {
	t.Helper()
	return openURL(t, "redis://"+sharedServer(t)+"?prefix="+prefix)
}

// memberOf returns the member of the queue for an attempt of a process.
func memberOf(p protocol.Process, r backend.Request) string { return (&service{proc: p}).member(r) }

var acquireScript, endScript = theScripts.acquire, theScripts.end

func isUncertain(err error) bool { return errors.Is(err, backend.ErrUncertain) }
