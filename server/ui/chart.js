// Charts as SVG: sparklines, bars, and plots with axes that can be read by keyboard and as a table.

import { day, h, hhmm, hms, int, s, say } from './dom.js';

/** @typedef {(number | null)[]} Values */
/** @typedef {{ name: string, cls: string, kind: 'line' | 'area' | 'dash' | 'bars', values: Values }} Series */
/** @typedef {{ from: number, step: number, marks?: { at: number, text: string }[] }} Axis */

/**
 * A smooth path through known values that never overshoots them; a gap where there is none.
 * @param {Values} values
 * @param {number} w
 * @param {number} hgt
 * @param {number} top
 * @param {number} pad
 */
function line(values, w, hgt, top, pad) {
	const step = w / Math.max(1, values.length - 1);
	const ys = values.map((value) => (value === null ? null : hgt - pad - Math.min(value / top, 1) * (hgt - 2 * pad)));
	/** The rise at a point: none at the ends and where the direction turns. @param {number} at */
	const rise = (at) => {
		const [before, y, after] = [ys[at - 1] ?? null, ys[at], ys[at + 1] ?? null];
		if (before === null || y === null || after === null || (y - before) * (after - y) <= 0) return 0;
		const least = Math.min(Math.abs(y - before), Math.abs(after - y), Math.abs(after - before) / 4);
		return Math.sign(after - before) * least;
	};
	return ys
		.map((y, at) => {
			if (y === null) return '';
			const [x, before] = [at * step, ys[at - 1] ?? null];
			const end = `${x.toFixed(1)},${y.toFixed(1)}`;
			if (before === null) return `M${end}`;
			const from = `${(x - (step * 2) / 3).toFixed(1)},${(before + (rise(at - 1) * 2) / 3).toFixed(1)}`;
			return `C${from} ${(x - step / 3).toFixed(1)},${(y - (rise(at) * 2) / 3).toFixed(1)} ${end}`;
		})
		.join('');
}

/** @param {Values} values */
function area(
	values,
	/** @type {number} */ w,
	/** @type {number} */ hgt,
	/** @type {number} */ top,
	/** @type {number} */ pad,
) {
	const first = values.findIndex((v) => v !== null);
	const known = values.map((v) => v ?? 0);
	if (first < 0) return '';
	const step = w / Math.max(1, values.length - 1);
	return `${line(
		known.map((v, at) => (at < first ? null : v)),
		w,
		hgt,
		top,
		pad,
	)}L${w},${hgt} ${(first * step).toFixed(1)},${hgt}Z`;
}

/**
 * Averages over about twenty seconds, the nearer ones more, where steps are shorter.
 * @param {Values} values @param {number} step
 */
export function smooth(values, step) {
	const by = Math.floor(10_000 / step);
	return values.map((value, at) => {
		if (value === null || by === 0) return value;
		let [sum, weights] = [0, 0];
		for (let n = Math.max(0, at - by); n <= Math.min(values.length - 1, at + by); n += 1) {
			const weight = by + 1 - Math.abs(n - at);
			const near = values[n];
			if (near !== null) [sum, weights] = [sum + near * weight, weights + weight];
		}
		return sum / weights;
	});
}

/** @param {Values} values */
const most = (values) => values.reduce((/** @type {number} */ m, v) => Math.max(m, v ?? 0), 0);

/** @param {Values} values @param {string} cls */
export function spark(values, cls) {
	const [w, hgt] = cls.includes('mini') ? [92, 18] : [120, 26];
	const top = most(values) * 1.12 || 1;
	return s(
		'svg',
		{ class: `spark ${cls}`, viewBox: `0 0 ${w} ${hgt}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
		s('path', { class: 'f', d: area(values, w, hgt, top, 1) }),
		s('path', { class: 'l', d: line(values, w, hgt, top, 1) }),
	);
}

/** @param {Values} values @param {string} cls */
export function bars(values, cls) {
	const [w, hgt] = cls.includes('mini') ? [92, 18] : [120, 26];
	return s(
		'svg',
		{ class: `spark ${cls}`, viewBox: `0 0 ${w} ${hgt}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
		...rects(values, w, hgt, most(values) || 1, 0.8),
	);
}

/**
 * @param {Values} values
 * @param {number} w
 * @param {number} hgt
 * @param {number} top
 * @param {number} fill
 * @param {string} [cls]
 */
function rects(values, w, hgt, top, fill, cls = '') {
	const step = w / values.length;
	return values.flatMap((value, at) => {
		if (!value) return [];
		const height = Math.max(1, (value / top) * hgt);
		return [
			s('rect', {
				class: cls,
				x: (at * step).toFixed(1),
				y: (hgt - height).toFixed(1),
				width: (step * fill).toFixed(1),
				height: height.toFixed(1),
			}),
		];
	});
}

/** The next number that halves and quarters are round of. @param {number} n */
function round(n) {
	const power = 10 ** Math.floor(Math.log10(n));
	const lead = [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10].find((l) => l * power >= n * 0.999) ?? 10;
	return lead * power;
}

/** A value of an axis that counts. @param {number} n */
export const plainly = (n) => (n >= 10 ? int(n) : String(Number(n.toFixed(2))));

/** Sums or averages neighbours, so that bars are wide enough to see. @param {Values} values @param {number} by */
export function gather(values, by) {
	return Array.from({ length: Math.ceil(values.length / by) }, (_, at) =>
		values.slice(at * by, at * by + by).reduce((/** @type {number} */ sum, v) => sum + (v ?? 0), 0),
	);
}

/**
 * A chart with axes. Arrow keys read its points; "as table" shows them all.
 * @param {{
 *   label: string, height: number, lines: number, series: Series[], axis: Axis,
 *   unit: (n: number) => string, strip?: Series, stripUnit?: (n: number) => string,
 * }} chart
 */
export function plot(chart) {
	const { axis, series, height, lines } = chart;
	const w = 800;
	const top = round(Math.max(...series.map((one) => most(one.values)), 0) || 1);
	const count = series[0]?.values.length ?? 0;
	const grid = Array.from({ length: lines }, (_, at) =>
		s('line', { class: 'grid', x1: 0, x2: w, y1: (height * at) / lines, y2: (height * at) / lines }),
	);
	const marks = (axis.marks ?? [])
		.map((mark) => ({ ...mark, x: ((mark.at - axis.from) / (axis.step * Math.max(1, count - 1))) * w }))
		.filter((mark) => mark.x > 4 && mark.x <= w);
	const cursor = s('line', { class: 'base', x1: 0, x2: 0, y1: 0, y2: height, visibility: 'hidden' });
	const canvas = s(
		'svg',
		{ viewBox: `0 0 ${w} ${height}`, height, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
		...grid,
		s('line', { class: 'base', x1: 0, x2: w, y1: height, y2: height }),
		...series.flatMap((one) => [
			one.kind === 'area' ? s('path', { class: `f ${one.cls}`, d: area(one.values, w, height, top, 0) }) : null,
			s('path', {
				class: `l ${one.cls}${one.kind === 'dash' ? ' dash thin' : ''}`,
				d: line(one.values, w, height, top, 0),
			}),
		]),
		...marks.map((mark) =>
			s('line', { class: 'mark', x1: mark.x, x2: mark.x, y1: 0, y2: height }, s('title', {}, mark.text)),
		),
		cursor,
	);
	const read = h('p.mute.reading', { 'aria-live': 'polite' });
	let at = -1;
	const all = chart.strip ? [...series, chart.strip] : series;
	const show = (/** @type {number} */ next) => {
		at = Math.max(0, Math.min(count - 1, next));
		const x = String((at / Math.max(1, count - 1)) * w);
		cursor.setAttribute('x1', x);
		cursor.setAttribute('x2', x);
		cursor.setAttribute('visibility', 'visible');
		say(read, `${stamp(axis, at)}: ${all.map((one) => point(chart, one, at, count)).join(', ')}`);
	};
	const hide = () => {
		cursor.setAttribute('visibility', 'hidden');
		say(read, '');
	};
	const body = h(
		'div.plot',
		{
			tabindex: 0,
			role: 'img',
			'aria-label': `${chart.label}. Arrow keys read its points`,
			onkeydown: (/** @type {KeyboardEvent} */ event) => {
				const by = { ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count }[event.key];
				if (by === undefined) return;
				event.preventDefault();
				event.stopPropagation();
				show((at < 0 ? count : at) + by);
			},
			onblur: hide,
			onpointermove: (/** @type {PointerEvent} */ event) => {
				const box = canvas.getBoundingClientRect();
				if (event.clientX >= box.left) show(Math.round(((event.clientX - box.left) / box.width) * (count - 1)));
			},
			onpointerleave: hide,
		},
		h(
			'div.chart',
			h('div.y', ...Array.from({ length: lines + 1 }, (_, n) => h('span', chart.unit((top * (lines - n)) / lines)))),
			canvas,
			chart.strip ? null : ticks(axis, count, lines),
		),
		chart.strip ? strip(chart.strip, chart.stripUnit ?? chart.unit, ticks(axis, count, lines)) : null,
	);
	return h('figure.body', body, read, table(chart, all, count));
}

/** @param {Series} one @param {(n: number) => string} unit @param {Node} under */
function strip(one, unit, under) {
	const top = most(one.values) || 1;
	return h(
		'div.chart',
		h('div.y', h('span', unit(top)), h('span', '0')),
		s(
			'svg',
			{ viewBox: '0 0 800 28', height: 28, preserveAspectRatio: 'none' },
			s('line', { class: 'base', x1: 0, x2: 800, y1: 28, y2: 28 }),
			...rects(one.values, 800, 28, top, 0.72, one.cls),
		),
		under,
	);
}

/** @param {Axis} axis @param {number} at */
function stamp(axis, at) {
	const ms = axis.from + axis.step * at;
	if (axis.step >= 1_800_000) return `${day(ms)} ${hhmm(ms)}`;
	return axis.step < 60_000 ? hms(ms) : hhmm(ms);
}

/** @param {Parameters<typeof plot>[0]} chart @param {Series} one @param {number} at @param {number} count */
function point(chart, one, at, count) {
	const place = Math.floor((at * one.values.length) / Math.max(1, count));
	const value = one.values[place];
	const unit = one.kind === 'bars' ? (chart.stripUnit ?? chart.unit) : chart.unit;
	return `${one.name} ${value === null || value === undefined ? 'not known' : unit(value)}`;
}

/** @param {Axis} axis @param {number} count @param {number} lines */
function ticks(axis, count, lines) {
	const n = lines > 2 ? 5 : 3;
	const text = (/** @type {number} */ at) =>
		axis.step >= 1_800_000
			? day(axis.from + axis.step * at)
			: (axis.step * count < 300_000 ? hms : hhmm)(axis.from + axis.step * at);
	return h(
		'div.x',
		{ 'aria-hidden': 'true' },
		...Array.from({ length: n }, (_, at) => h('span', text(Math.round((at * (count - 1)) / (n - 1))))),
	);
}

/**
 * At most sixty rows, filled when it is opened.
 * @param {Parameters<typeof plot>[0]} chart
 * @param {Series[]} all
 * @param {number} count
 */
function table(chart, all, count) {
	const details = h(
		'details.astable',
		{
			ontoggle: () => {
				if (!details.open || details.children.length > 1) return;
				const step = Math.max(1, Math.ceil(count / 60));
				const rows = Array.from({ length: Math.ceil(count / step) }, (_, n) => n * step);
				details.append(
					h(
						'div.scroll',
						{ tabindex: 0, role: 'region', 'aria-label': chart.label },
						h(
							'table',
							h(
								'thead',
								h(
									'tr',
									h('th', { scope: 'col' }, 'Time'),
									...all.map((one) => h('th', { scope: 'col', class: 'num' }, one.name)),
								),
							),
							h(
								'tbody',
								...rows.map((at) =>
									h(
										'tr',
										h('th', { scope: 'row' }, stamp(chart.axis, at)),
										...all.map((one) => h('td.num', point(chart, one, at, count).slice(one.name.length + 1))),
									),
								),
							),
						),
					),
				);
			},
		},
		h('summary', 'as table'),
	);
	return details;
}
