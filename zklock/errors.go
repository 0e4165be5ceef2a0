package zklock

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
)

// errSessionOver: the server has ended the session, and all of its nodes with it.
var errSessionOver = errors.New("zookeeper: the session has expired")

// sessionGone tells whether err says that nothing of a session can be trusted any more.
func sessionGone(err error) bool {
	return errors.Is(err, errSessionOver) || errors.Is(err, errSilent) || errors.Is(err, errRetired)
}

// refusals are the server's answers to a request that it did not execute.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals, zk.ErrNodeExists, zk.ErrNotEmpty,
	zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrSessionMoved,
	zk.ErrReconfigDisabled,
}

// answered tells whether err is the server's own word, nil included.
func answered(err error) bool {
	if err == nil {
		return true
	}
	for _, r := range refusals {
		if errors.Is(err, r) {
			return true
		}
	}
	// a code that the client library does not know: quota exceeded, throttled
	return strings.HasPrefix(err.Error(), "unknown error: ")
}

// lostConnection tells whether a request went down with its connection.
func lostConnection(err error) bool {
	var op *net.OpError
	return !errors.As(err, &notOpened{}) && (errors.Is(err, zk.ErrConnectionClosed) || errors.As(err, &op))
}

// permanent tells whether repeating a request cannot help.
func permanent(err error) bool {
	return errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrInvalidACL) || errors.Is(err, zk.ErrAuthFailed) ||
		errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrClosed)
}

// explain names the node, and what to do where that is known.
func explain(err error, path string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("zookeeper: node %.200q: %w (what is needed stands in the documentation of package zklock, Permissions)", path, err)
	case errors.Is(err, backend.ErrClosed), errors.Is(err, backend.ErrInvalid), sessionGone(err):
		return err
	case lostConnection(err), errors.Is(err, zk.ErrClosing):
		return fmt.Errorf("zookeeper: connection lost: %w", err)
	}
	return fmt.Errorf("zookeeper: node %.200q: %w", path, err)
}

// changed explains the error of a request that changes something: it is
// ErrUncertain unless the server has refused.
func changed(err error, path string) error {
	if answered(err) || sessionGone(err) {
		return explain(err, path)
	}
	if errors.Is(err, backend.ErrUncertain) {
		return err
	}
	return backend.Uncertain(explain(err, path))
}

func isUncertain(err error) bool { return errors.Is(err, backend.ErrUncertain) }
