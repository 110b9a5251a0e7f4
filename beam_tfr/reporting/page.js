const field = document.getElementById("search");
if (field) {
  const rows = [...document.querySelectorAll("#class-table tbody tr")];
  const shown = document.getElementById("search-count");
  field.addEventListener("input", () => {
    const wanted = field.value.toLocaleLowerCase();
    let number = 0;
    for (const row of rows) {
      const fits = row.cells[0].textContent.toLocaleLowerCase().includes(wanted);
      row.hidden = !fits;
      number += fits;
    }
    shown.textContent = `${number} of ${rows.length}`;
  });
}
