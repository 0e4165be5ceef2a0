package main

import "github.com/interlock-go/lock/hack/pictures/draw"

// docs/adr/0003-trust.md and backend.MaxProvisionalTTL have the rule.
var provisional = draw.Picture{
	Name:  "provisional-grant",
	Title: "A provisional grant and its renewal",
	Alt: "Timeline: a release grants the lock to the first waiter for 3 seconds at most. The waiter renews it after 20 ms, " +
		"and it lasts a full TTL from then on. If the process of the waiter is dead, nothing is renewed, and the lock goes to " +
		"another process after the 3 seconds and not after a TTL.",
	Draw: func(c *draw.Canvas) {
		draw.Timeline(c, 16, []draw.Lane{
			{Heading: "The new holder lives", Bars: []draw.Bar{
				{From: 0, To: 18, Kind: draw.Good, Text: "former holder"},
				{From: 18, To: 36, Kind: draw.Warn, Text: "for 3 s at most"},
				{From: 36, To: 100, Kind: draw.Good, Text: "a full TTL, renewed every third of it"},
			}},
			{Heading: "The process of the first waiter is dead", Bars: []draw.Bar{
				{From: 0, To: 18, Kind: draw.Good, Text: "former holder"},
				{From: 18, To: 64, Kind: draw.Bad, Text: "granted for 3 s at most, and not renewed"},
				{From: 64, To: 100, Kind: draw.Good, Text: "a waiter of another process"},
			}},
		}, []draw.Mark{
			{At: 18, Text: "Unlock: the service grants the lock to the first waiter, and notifies it"},
			{At: 36, Text: "20 ms after the grant: the first renewal"},
			{At: 64, Text: "3 s after: its end"},
		})
		c.Text(16, c.Bottom()+10, draw.Width-32, "start", "faint", "Not to scale. Redis, PostgreSQL, MySQL and MariaDB grant in this way.")
	},
}
