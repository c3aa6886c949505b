"""The pictures of docs/: the words fit into their boxes, nothing covers them, and they are readable in light and
dark.
"""

import pytest

from tools.pictures import DIRECTORY

#: For each text: its words, the box around it, whether it fits, the lines that cross it, and its contrast.
LOOK = """() => {
  const box = (one) => one.getBoundingClientRect()
  const over = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
  const holds = (a, b) => a.left + 3 <= b.left && b.right + 3 <= a.right && a.top <= b.top && b.bottom <= a.bottom
  const part = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }
  const light = (rgb) => { const [r, g, b] = rgb.match(/\\d+/g).map(Number); return .2126 * part(r) + .7152 * part(g) + .0722 * part(b) }
  const fill = (one) => light(getComputedStyle(one).fill)
  const crosses = (path, at) => {
    const svg = path.ownerSVGElement, to = path.getScreenCTM()
    for (let done = 0; done <= path.getTotalLength(); done += 1) {
      const point = path.getPointAtLength(done).matrixTransform(to)
      if (at.left < point.x && point.x < at.right && at.top < point.y && point.y < at.bottom) return true
    }
    return false
  }
  const paper = document.querySelector('.paper')
  const boxes = [...document.querySelectorAll('rect.box')], paths = [...document.querySelectorAll('svg > path')]
  const texts = [...document.querySelectorAll('text')]
  return texts.map((text) => {
    const at = box(text), under = boxes.filter((one) => over(box(one), at)), ground = under[0] || paper
    const [more, less] = [fill(text), fill(ground)].sort((a, b) => b - a)
    return {
      words: text.textContent,
      held: under.length < 2 && holds(box(ground), at),
      free: !texts.some((other) => other !== text && over(box(other), at)) && (under.length > 0 || !paths.some((path) => crosses(path, at))),
      contrast: (more + 0.05) / (less + 0.05),
    }
  })
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("picture", sorted(DIRECTORY.glob("*.svg")), ids=lambda picture: picture.stem)
def test_all_words_can_be_read(browser, picture, scheme):
    context = browser.new_context(color_scheme=scheme)
    tab = context.new_page()
    tab.set_content(picture.read_text())
    found = tab.evaluate(LOOK)
    context.close()
    assert len(found) > 5
    assert [one["words"] for one in found if not (one["held"] and one["free"])] == []
    assert [one["words"] for one in found if one["contrast"] < 4.5] == []
