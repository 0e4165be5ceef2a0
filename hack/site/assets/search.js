// Searches the index of the page's language, which is loaded when the field gets the focus. A section is found if it
// has all the words; those in whose headings the words are come first.
(function () {
  const root = document.documentElement.dataset.root;
  const field = document.querySelector('input[type=search]');
  const results = document.getElementById('results');
  let loading;

  function load() {
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement('script');
      script.src = document.documentElement.dataset.index;
      script.onload = resolve;
      script.onerror = () => { loading = undefined; reject(new Error('no index')); };
      document.head.append(script);
    });
    return loading;
  }

  function find(words) {
    const found = [];
    for (const entry of window.searchIndex) {
      const title = (entry.page + ' ' + entry.heading).toLowerCase(), text = entry.text.toLowerCase();
      if (words.every(w => title.includes(w) || text.includes(w))) {
        found.push({ entry, score: words.filter(w => title.includes(w)).length });
      }
    }
    return found.sort((a, b) => b.score - a.score).slice(0, 20).map(f => f.entry);
  }

  // excerpt returns the text around the first of the words.
  function excerpt(text, words) {
    const first = Math.min(...words.map(w => text.toLowerCase().indexOf(w)).filter(i => i >= 0), text.length);
    const at = first < 60 ? 0 : text.lastIndexOf(' ', first - 40) + 1;
    return (at > 0 ? '… ' : '') + text.slice(at, at + 160) + (text.length > at + 160 ? ' …' : '');
  }

  async function show() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.hidden = words.length === 0;
    if (results.hidden) return;
    await load();
    const links = find(words).map((entry, i) => {
      const link = document.createElement('a'), about = document.createElement('small');
      link.href = root + entry.link;
      link.textContent = entry.heading === entry.page ? entry.page : entry.page + ' › ' + entry.heading;
      link.className = i === 0 ? 'first' : '';
      about.textContent = excerpt(entry.text, words);
      link.append(about);
      return link;
    });
    if (links.length === 0) {
      const none = document.createElement('p');
      none.textContent = results.dataset.none + ' “' + field.value + '”';
      links.push(none);
    }
    results.replaceChildren(...links);
  }

  function close() { results.hidden = true; }

  field.disabled = false;
  field.addEventListener('focus', () => { load().catch(() => {}); });
  field.addEventListener('input', show);
  field.form.addEventListener('submit', event => {
    event.preventDefault();
    const first = results.querySelector('a');
    if (first && !results.hidden) { close(); location.href = first.href; }
  });
  results.addEventListener('click', event => { if (event.target.closest('a')) close(); });
  document.addEventListener('click', event => { if (!event.target.closest('header')) close(); });
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape') close();
    if (event.key === '/' && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) { event.preventDefault(); field.focus(); }
    if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && !results.hidden) {
      const links = [...results.querySelectorAll('a')];
      const next = links.indexOf(document.activeElement) + (event.key === 'ArrowDown' ? 1 : -1);
      event.preventDefault();
      (links[next] ?? field).focus();
    }
  });
})();
