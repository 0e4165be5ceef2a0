package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0003-trust.md has the rule.
var lease = draw.Picture{
	Name:  "lease",
	Title: "The life of a lease",
	Alt: "Timeline of a lease that is not renewed. The client counts the TTL from before it sends the request. " +
		"It trusts the lease from the reply until the TTL minus a margin. Then the context of the lease ends. " +
		"The service keeps the lease until later, so that no other client can be granted the lock while the first one trusts it.",
	Draw: func(c *draw.Canvas) {
		draw.Timeline(c, 16, []draw.Lane{
			{Heading: "The client, on its monotonic clock", Bars: []draw.Bar{
				{From: 0, To: 16, Kind: draw.Dim, Text: "request"},
				{From: 16, To: 68, Kind: draw.Good, Text: "trusted: the work runs under the context of the lease"},
				{From: 68, To: 84, Kind: draw.Warn, Text: "margin: stopped"},
			}},
			{Heading: "The service, on its clock", Bars: []draw.Bar{
				{From: 8, To: 91, Kind: draw.Accent, Text: "the lock is held for one TTL"},
				{From: 91, To: 100, Kind: draw.Plain, Text: "free"},
			}},
		}, []draw.Mark{
			{At: 68, Above: true, Text: "trust ends: the context ends with lock.ErrLost"},
			{At: 84, Above: true, Text: "sent + TTL: the lease certainly lasts until here"},
			{At: 91, Above: true, Text: "expired: the next waiter is granted the lock"},
			{At: 0, Text: "sent: the client counts from here"},
			{At: 8, Text: "granted by the service, which counts from here"},
			{At: 16, Text: "the reply arrives"},
			{At: 32, Text: "renewal is due: each one begins a new TTL"},
		})
	},
}
