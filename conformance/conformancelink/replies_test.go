package conformancelink

import "testing"

func TestLinkCutsAfterReplies(t *testing.T) {
	t.Parallel()
	k, s := linked(t)
	w, other := dial(t, k.Addr()), dial(t, k.Addr())
	other.send("PING") // until it is answered the proxy may not have the connection
	other.wants("did PING")
	k.CutAfterReplies(1)
	w.send("PING")
	w.wants("did PING")
	w.send("SET cut")
	w.wantsReset()
	other.wantsReset()
	if !s.has("cut") {
		t.Error("the request whose reply was cut off was not executed")
	}
	answers(t, k)
}

func TestLinkSilentAfterReplies(t *testing.T) {
	t.Parallel()
	k, s := linked(t)
	w := dial(t, k.Addr())
	k.SilenceAfterReplies(1)
	w.send("PING")
	w.wants("did PING")
	w.send("SET silent")
	lost(t, k, 1)
	if !s.has("silent") {
		t.Error("the request whose reply was dropped was not executed")
	}
	w.wantsSilence()
	k.Heal()
	w.wantsReset()
	answers(t, k)
}

func TestLinkSilencesOpenConnections(t *testing.T) {
	t.Parallel()
	k, s := linked(t)
	w, idle := dial(t, k.Addr()), dial(t, k.Addr())
	for _, w := range []wire{w, idle} { // until it is answered the proxy may not have the connection
		w.send("PING")
		w.wants("did PING")
	}
	k.SilenceOpen()
	answers(t, k)
	w.send("SET k")
	lost(t, k, 1)
	w.wantsSilence()
	if s.has("k") {
		t.Error("a request passed a connection that is silent")
	}
	answers(t, k)
	k.Heal()
	w.wantsReset()
	idle.wantsReset() // it is in doubt, too
	answers(t, k)
}
